// The software GPU's own cuda_runtime.h: what the CUDA unit tests (tests/cuda) call of the runtime, on host memory.
// A kernel is a function of the same program; simgpu_module.cuh ends the translation unit.
//
// Of PIH_SIMGPU (see driver/device.cpp) it takes `devices`, of which there is one or none, and `seed`.
#pragma once
#include <device.cuh>

#include "driver/memory.h"

extern "C" __attribute__((visibility("default"))) int simgpu_run(void* function, const unsigned* grid, const unsigned* threads,
                                                                  void** parameters, uint64_t seed, char* error, size_t room);

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorNoDevice = 100,
  cudaErrorIllegalAddress = 700,
  cudaErrorMisalignedAddress = 716,
  cudaErrorLaunchFailure = 719,
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2 };
struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
struct cudaDeviceProp {
  char name[256];
  int major, minor;
};

namespace simgpu {
// After an error of a kernel nothing works any more.
inline cudaError_t sticky() { return static_cast<cudaError_t>(state.sticky); }
}  // namespace simgpu

inline const char* cudaGetErrorString(cudaError_t code) {
  switch (code) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorIllegalAddress: return "an illegal memory access was encountered";
    case cudaErrorMisalignedAddress: return "misaligned address";
    case cudaErrorLaunchFailure: return "unspecified launch failure";
  }
  return "unrecognized error code";
}

inline cudaError_t cudaGetDeviceCount(int* count) {
  *count = *simgpu::setting("devices", "sm_89") ? 1 : 0;
  return *count ? cudaSuccess : cudaErrorNoDevice;
}

inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  int sm = 0;
  if (device || sscanf(simgpu::setting("devices", "sm_89"), "sm_%d", &sm) != 1) return cudaErrorInvalidValue;
  snprintf(properties->name, sizeof properties->name, "simgpu");
  properties->major = sm / 10, properties->minor = sm % 10;
  return cudaSuccess;
}

inline cudaError_t cudaMalloc(void** address, size_t size) {
  simgpu::Allocation* made = size ? simgpu::allocate(size, false) : nullptr;
  if (!made) return cudaErrorMemoryAllocation;
  *address = made->data;
  return simgpu::sticky();
}

inline cudaError_t cudaFree(void* address) {
  simgpu::Allocation* found = simgpu::find(address, 0);
  if (!found || found->data != address) return cudaErrorInvalidValue;
  simgpu::release(*found);
  return simgpu::sticky();
}

inline cudaError_t cudaMemcpy(void* to, const void* from, size_t size, cudaMemcpyKind kind) {
  if (!simgpu::find(kind == cudaMemcpyHostToDevice ? to : from, size)) return cudaErrorInvalidValue;
  if (!simgpu::sticky()) memcpy(to, from, size);
  return simgpu::sticky();
}

inline cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 threads, void** parameters, size_t shared, void*) {
  if (!grid.x || !grid.y || !grid.z || grid.y > 65535 || grid.z > 65535 || shared) return cudaErrorInvalidValue;
  if (simgpu::sticky()) return simgpu::sticky();
  const unsigned blocks[3] = {grid.x, grid.y, grid.z}, each[3] = {threads.x, threads.y, threads.z};
  const uint64_t seed = strtoull(simgpu::setting("seed", "1"), nullptr, 10) + simgpu::state.launches++;
  char error[300] = "";
  int code = simgpu_run(const_cast<void*>(function), blocks, each, parameters, seed, error, sizeof error);
  if (!code && !simgpu::intact()) {
    code = cudaErrorIllegalAddress;
    snprintf(error, sizeof error, "a write beside an allocation");
  }
  if (code) fprintf(stderr, "simgpu: %s\n", error);
  simgpu::state.sticky = code;
  return cudaSuccess;  // as on a device, whoever waits for the kernel learns of it
}

inline cudaError_t cudaDeviceSynchronize() { return simgpu::sticky(); }
