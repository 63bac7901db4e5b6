"""Animations of sampling: a stored trajectory as GIF, or as MP4 where ffmpeg is installed."""

import io
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from blackout.atomic import atomic
from blackout.io.images import as_bytes, as_image, image_grid

MARK = "Blackout: sampling trajectory"
"""In the metadata of every figure and animation of a trajectory."""
SUFFIXES = (".gif", ".mp4")

_FRAMES = 60  # after the first one
_SECONDS, _HOLD = 5.0, 2.0  # of all frames but the last, and of the last
_SHORTEST, _LONGEST = 0.08, 0.5  # seconds of a frame


def is_marked(path: Path) -> bool:
    """Whether a file is a figure or an animation of a sampling trajectory that this package wrote."""
    return path.is_file() and MARK.encode() in path.read_bytes()


def check_path(path: Path) -> None:
    """Reject, before sampling, a file that cannot be written."""
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"path must end in {' or '.join(SUFFIXES)}, got {path}")
    if path.suffix.lower() == ".mp4" and shutil.which("ffmpeg") is None:
        raise RuntimeError(f"{path} needs the program ffmpeg, which is not installed; a .gif needs no other program")


def write_animation(
    path: str | Path,
    trajectory: Any,
    max_state: int | None = None,
    *,
    mask_state: int | None = None,
    scaled: bool = True,
) -> Path:
    """Write a sampling trajectory of images as an animation, which ends with the samples, shown for two seconds.

    Parameters
    ----------
    path
        A .gif or an .mp4 file; MP4 needs the program ffmpeg.
    trajectory
        X_{t_T}, ..., X_{t_1}, X_0, integers of shape (T + 1, batch, 1 or 3, height, width): the result of
        ``model.sample(..., trajectory=True)``. At most 61 states are shown, evenly spaced in the step index.
    max_state
        Intensity shown as white (default: the largest one in ``trajectory``).
    mask_state
        A state shown as black: `process.mask_state`.
    scaled
        Make dark frames brighter: the largest state of each frame but the last is white. Pure death starts black.

    Returns
    -------
    The path.
    """
    path = Path(path)
    check_path(path)
    frames, seconds = _frames(numpy.asarray(trajectory), max_state, mask_state, scaled)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic(path) as partial:
        if path.suffix.lower() == ".gif":
            partial.write_bytes(_gif(frames, seconds))
        else:
            _write_mp4(partial, frames, seconds)
    return path


def gif(trajectory: NDArray[Any], max_state: int | None, mask_state: int | None) -> bytes:
    """The contents of a .gif file; arguments as those of `write_animation`."""
    return _gif(*_frames(trajectory, max_state, mask_state, scaled=True))


def _frames(
    x: NDArray[Any], max_state: int | None, mask_state: int | None, scaled: bool
) -> tuple[list[NDArray[numpy.uint8]], float]:
    """Grids of images, each (channels, height, width), and the seconds that each but the last is shown."""
    if x.ndim != 5 or x.shape[2] not in (1, 3) or 0 in x.shape:
        raise ValueError(f"trajectory must have shape (T + 1, batch, 1 or 3, height, width), got {x.shape}")
    if mask_state is not None:
        x = numpy.where(x == mask_state, 0, x)
    white = max(1, int(x.max()) if max_state is None else max_state)
    chosen = numpy.unique(numpy.rint(numpy.linspace(0, len(x) - 1, _FRAMES + 1)).astype(int))
    frames = []
    for k in chosen:
        highest = int(x[k].max()) if scaled and k < len(x) - 1 else white
        frames.append(image_grid(as_bytes(x[k], min(highest, white) or 1)))
    return frames, min(max(_SECONDS / len(frames), _SHORTEST), _LONGEST)


def _gif(frames: list[NDArray[numpy.uint8]], seconds: float) -> bytes:
    first, *others = map(as_image, frames)
    durations = [10 * round(100 * seconds)] * len(others) + [round(1000 * _HOLD)]
    buffer = io.BytesIO()
    options: dict[str, Any] = {"duration": durations, "loop": 0, "optimize": False, "comment": MARK}
    first.save(buffer, "gif", save_all=True, append_images=others, **options)
    return buffer.getvalue()


def _write_mp4(path: Path, frames: list[NDArray[numpy.uint8]], seconds: float) -> None:
    channels, height, width = frames[0].shape
    frames = frames + [frames[-1]] * round(_HOLD / seconds)
    source = ["-f", "rawvideo", "-pix_fmt", "gray" if channels == 1 else "rgb24", "-s", f"{width}x{height}"]
    # Players need an even size, and colours at half the resolution.
    result = ["-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-pix_fmt", "yuv420p", "-movflags", "+faststart"]
    result += ["-metadata", f"title={MARK}", "-y"]
    command = ["ffmpeg", "-loglevel", "error", *source, "-framerate", f"{1 / seconds:.3f}", "-i", "-", *result]
    pixels = b"".join(numpy.ascontiguousarray(frame.transpose(1, 2, 0)).tobytes() for frame in frames)
    done = subprocess.run([*command, f"file:{path}"], input=pixels, capture_output=True)
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise RuntimeError(f"ffmpeg cannot write {path}: {reason}")
