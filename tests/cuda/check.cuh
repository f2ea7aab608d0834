// What the CUDA unit tests share: values that lie on the host and on the device, a launch, a comparison, main().
//
// A test writes `void test()` in terms of these: fill values, `run` a kernel's template, compare what it left with a
// reference in double. Every run copies all values to the device and back, and fails where a kernel wrote beside a row.
#pragma once
#include <cuda_runtime.h>
#include <math.h>
#include <pack.cuh>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

constexpr double FLOAT = 1.0 / (1 << 24), BF16 = 1.0 / (1 << 8);  // one rounding to float32, and to bf16, of a value
constexpr double LEAST = 1.1754943508222875e-38;                  // float32 of full precision
constexpr unsigned EPS_BITS = 0x358637bdu;                        // 1e-6 as float32
constexpr double EPS = 9.999999974752427e-7;
constexpr int TOKENS = 0, WANTED = 2;  // which of a step's counts are a call's rows

inline int compared, failed;

inline void must(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(code));
  exit(1);
}

// One comparison; says the first ten that fail. A NaN is near nothing but a NaN.
inline void near(const char* what, int row, int column, double found, double wanted, double error) {
  ++compared;
  if (found == wanted || fabs(found - wanted) <= error || (isnan(found) && isnan(wanted))) return;
  if (++failed <= 10)
    fprintf(stderr, "%s: row %d column %d is %.9g, not %.9g to within %.3g\n", what, row, column, found, wanted, error);
}

inline void same(const char* what, int row, int column, double found, double wanted) {
  near(what, row, column, found, wanted, 0);
}

// From -1 to 1, the same in every run.
inline float random_value() {
  static unsigned state = 12345;
  state = state * 1664525u + 1013904223u;
  return static_cast<float>(static_cast<int>(state) >> 8) / (1 << 23);
}

// To nearest, ties to even; for what is finite.
inline unsigned short bf16_bits(float value) {
  unsigned bits;
  memcpy(&bits, &value, 4);
  return static_cast<unsigned short>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
inline float bf16_value(unsigned short bits) {
  const unsigned wide = static_cast<unsigned>(bits) << 16;
  float value;
  memcpy(&value, &wide, 4);
  return value;
}

// What goes to the device before a run and comes back after it: `rows` of `stride` bytes, of which those from `begin` to
// `end` are a row's and the others nobody's.
struct Memory {
  char *here, *there;
  size_t rows, stride, begin, end;
  Memory* next;

  Memory(size_t rows, size_t stride, size_t begin, size_t end);
  ~Memory();
  Memory(const Memory&) = delete;
  size_t bytes() const { return rows * stride; }
};
inline Memory* memories;
constexpr unsigned char BESIDE = 0xff;  // NaNs, where a kernel reads them

inline Memory::Memory(size_t rows, size_t stride, size_t begin, size_t end)
    : here(static_cast<char*>(malloc(rows * stride))), rows(rows), stride(stride), begin(begin), end(end), next(memories) {
  void* address = nullptr;
  must(cudaMalloc(&address, bytes()), "cudaMalloc");
  there = static_cast<char*>(address);
  memset(here, BESIDE, bytes());
  memories = this;
}

inline Memory::~Memory() {
  Memory** link = &memories;
  while (*link != this) link = &(*link)->next;
  *link = next;
  must(cudaFree(there), "cudaFree");
  free(here);
}

inline void to_device() {
  for (const Memory* item = memories; item; item = item->next)
    must(cudaMemcpy(item->there, item->here, item->bytes(), cudaMemcpyHostToDevice), "cudaMemcpy to the device");
}

inline void from_device() {
  for (const Memory* item = memories; item; item = item->next) {
    must(cudaMemcpy(item->here, item->there, item->bytes(), cudaMemcpyDeviceToHost), "cudaMemcpy from the device");
    for (size_t i = 0; i < item->bytes(); ++i) {
      const size_t row = i / item->stride, at = i % item->stride;
      if ((at >= item->begin && at < item->end) || static_cast<unsigned char>(item->here[i]) == BESIDE) continue;
      fprintf(stderr, "written beside row %zu, at byte %ld\n", row, static_cast<long>(at) - static_cast<long>(item->begin));
      ++failed;
      break;
    }
  }
}

// rows x columns values, each row inside a wider one. Until they are filled every bit is set: NaNs, or -1.
template <class T>
class Rows {
 public:
  static constexpr int MARGIN = 32;  // bytes
  const int rows, columns;

  Rows(int rows, int columns)
      : rows(rows),
        columns(columns),
        memory_(rows, (columns * sizeof(T) + 15) / 16 * 16 + 2 * MARGIN, MARGIN, MARGIN + columns * sizeof(T)) {}

  T* operator[](int row) { return reinterpret_cast<T*>(memory_.here + row * memory_.stride + MARGIN); }
  T* there() const { return reinterpret_cast<T*>(memory_.there + MARGIN); }
  // As a kernel sees it, from a column on.
  pih_operand operand(int column = 0) const {
    return {reinterpret_cast<char*>(there() + column), static_cast<int64>(memory_.stride), columns - column};
  }

  // give(row, column) for each value.
  template <class Give>
  void fill(Give give) {
    for (int row = 0; row < rows; ++row)
      for (int column = 0; column < columns; ++column) (*this)[row][column] = static_cast<T>(give(row, column));
  }

 private:
  Memory memory_;
};

inline void random(Rows<float>& values, float scale = 1) {
  values.fill([=](int, int) { return random_value() * scale; });
}
inline void random(Rows<unsigned short>& values, float scale = 1) {
  values.fill([=](int, int) { return bf16_bits(random_value() * scale); });
}

// Tokens start .. start + tokens - 1 of one sequence.
struct Sequence {
  int start, tokens;
};

// A ragged batch of sequences, whose pages lie in falling order; all of it is the test's to change. Rows that are wanted:
// `wanted` of the tokens, from the last one back.
struct Step {
  int tokens = 0, seqs, pages = 0, pages_per_seq = 0;
  Rows<int> counts{1, 4}, ids{1, 256}, positions{1, 256}, seq_start{1, 64}, page_table{1, 1024}, slots{1, 256}, rows{1, 256},
      row_slots{1, 256}, sampled{1, 256};
  Rows<pih_sampling> sampling{1, 256};
  Rows<float> scratch{1, 1 << 16};

  template <int S>
  explicit Step(const Sequence (&sequences)[S], int wanted = 0) : seqs(S) {
    for (const Sequence& item : sequences) {
      const int own = (item.start + item.tokens + 15) / 16;
      pages += own;
      pages_per_seq = own > pages_per_seq ? own : pages_per_seq;
    }
    int page = pages;
    for (int i = 0; i < S; ++i) {
      int* table = page_table[0] + i * pages_per_seq;
      for (int at = 0; at < (sequences[i].start + sequences[i].tokens + 15) / 16; ++at) table[at] = --page;
      seq_start[0][i] = tokens;
      for (int at = 0; at < sequences[i].tokens; ++at, ++tokens) {
        const int position = positions[0][tokens] = sequences[i].start + at;
        slots[0][tokens] = table[position / 16] * 16 + position % 16;
      }
    }
    seq_start[0][S] = tokens;
    for (int i = 0; i < wanted; ++i) rows[0][i] = tokens - 1 - i, row_slots[0][i] = 2 * i + 1;
    const int all[4] = {tokens, S, wanted, pages_per_seq};
    memcpy(counts[0], all, sizeof all);
    scratch.fill([](int, int) { return 0; });
  }

  pih_step there() const {
    return {counts.there(), ids.there(),       positions.there(), seq_start.there(), page_table.there(), slots.there(),
            rows.there(),   row_slots.there(), sampling.there(),  sampled.there(),   scratch.there()};
  }
};

template <class Kernel>
__global__ void __launch_bounds__(Kernel::launch.threads, pih_least_blocks(Kernel::launch))
    entry(const pih_call call, const pih_step step) {
  Kernel::run(call, step);
}

// One launch of an entry, as the backend launches it, with room for SPARE more rows and sequences than the step has, as a
// captured launch has.
template <class Kernel, int N>
void run(Step& step, const pih_operand (&operands)[N], int axis = TOKENS) {
  constexpr pih_launch launch = Kernel::launch;
  constexpr int SPARE = 3;
  const int rows = step.counts[0][axis], most = launch.most_rows - SPARE < rows ? launch.most_rows : rows + SPARE;
  if (rows > launch.most_rows || launch.scratch > step.scratch.columns) {
    fprintf(stderr, "the test asks for %d rows and %d of scratch\n", rows, launch.scratch);
    exit(1);
  }
  pih_call call = {};
  memcpy(call.operand, operands, sizeof operands);
  call.axis = axis;
  pih_step there = step.there();
  void* parameters[2] = {&call, &there};
  const int blocks = (most + launch.rows_per_block - 1) / launch.rows_per_block + launch.blocks_per_seq * (step.seqs + SPARE);
  const void* kernel = reinterpret_cast<const void*>(&entry<Kernel>);
  to_device();
  must(cudaLaunchKernel(kernel, dim3(blocks, launch.y, launch.z), dim3(launch.threads), parameters, 0, nullptr), "launch");
  must(cudaDeviceSynchronize(), "kernel");
  from_device();
}

void test();

// Exit code 0: every comparison held. 1: one did not, or a kernel failed. 9: there is no device to run on.
int main() {
  int devices = 0;
  const cudaError_t code = cudaGetDeviceCount(&devices);
  if (code != cudaSuccess || devices == 0) {
    fprintf(stderr, "no CUDA device, so nothing was tested: %s\n", cudaGetErrorString(code));
    return 9;
  }
  cudaDeviceProp properties;
  must(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  printf("on %s (sm_%d%d)\n", properties.name, properties.major, properties.minor);
  test();
  printf("%d values compared, %d wrong\n", compared, failed);
  return failed || !compared ? 1 : 0;
}
