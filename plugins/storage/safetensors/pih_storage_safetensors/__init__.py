"""storage.weights from one safetensors file: mapped, never copied, checked before anyone reads a tensor."""

from __future__ import annotations

from pih_runtime import plan
from pih_runtime.contracts import Context, Host
from pih_storage_safetensors.chunks import Chunks
from pih_storage_safetensors.expected import APART_FIX, IMAGE_FIX, at_start, check_size, expected
from pih_storage_safetensors.file import MappedFile
from pih_storage_safetensors.mapped import MappedWeights, check_against, tensors_of

__all__ = ["start"]
PATH = "weights/weights.safetensors"


def start(context: Context) -> MappedWeights:
    """Map the weights; check what of them the lock wants checked at start, and their tensors against the plan."""
    host: Host = context.provider("platform.host")
    about = context.lock["weights"]
    path, apart = context.root / PATH, about["delivery"] == "separate"
    wanted = plan.read(context.root)
    eager = at_start(about)
    fix = APART_FIX if apart else IMAGE_FIX
    file = MappedFile(path, "mount the weights at /pih/weights" if apart else IMAGE_FIX)

    def told(seconds: float) -> None:
        context.log(f"weights: every chunk checked, in {seconds:.2f} s")

    try:
        table, sealed = expected(context.root, about)
        chunks = None
        if table is not None:
            check_size(table, len(file.data), str(path), fix)
            chunks = Chunks(file.data, table, host.threads, str(path), fix)
        weights = MappedWeights(file, tensors_of(file.data, chunks, str(path)), chunks, told)
        check_against(weights.tensors, wanted.stored, str(path))
        context.log(_told(len(file.data), chunks, sealed, eager=eager))
        if eager:
            weights.check(weights.tensors)
        file.watch(context.fail)
    except BaseException:
        file.stop()
        raise
    return weights


def _told(size: int, chunks: Chunks | None, sealed: str, *, eager: bool) -> str:
    """What operators should know of these weights: above all, where nobody vouches for them."""
    when = "now" if eager else "at first use"
    if sealed:
        return f"weights {size} bytes, checked {when} against {sealed}"
    if chunks is not None:
        return f"weights {size} bytes are not pinned: checked {when} against the digests beside them alone"
    return f"weights {size} bytes are not pinned, and no digests lie beside them: any that fit the plan are taken"
