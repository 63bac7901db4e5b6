"""Limits of one request; every error message names the limit."""

import math

from blackout.model import DiffusionModel

STEPS = 1000
CORRECTORS = 10
RESAMPLE = 20
GUIDANCE = 20.0
SEED = 2**53 - 1  # the largest integer that JavaScript represents exactly
IMAGES = 64
COST = {"cpu": 1e14, "cuda": 1e16}  # multiplications of a job: some minutes
FRAMES = 60  # of one job that are sent to the browser
UPLOAD = 8 << 20  # bytes
PIXELS = 24_000_000  # of an uploaded image, once decoded
SCANS = 300  # of a progressive JPEG: about ten are usual, and each one passes over all pixels
MESSAGE = 2 << 20  # bytes of a JSON request
ERROR = 1000  # characters of an error message
SESSIONS = 16  # clients with a turn of their own in the queue
WAITING = 4  # jobs of one session: as many as one browser submits
CONNECTIONS = 128
SECONDS_FOR_HEAD = 10.0  # to send the head of a request, or to use a new connection
SECONDS_FOR_BODY = 60.0
SECONDS_TO_READ = 60.0  # until a client reads what it was sent
SECONDS_TO_STOP = 0.5  # that a server waits for a network pass when it stops

_COMPONENTS = 1 << 16  # of all images of a job, because they are sent to the browser up to FRAMES times


def max_images(model: DiffusionModel) -> int:
    """The largest number of images of a job: a power of two, smaller for larger images."""
    fitting = max(1, _COMPONENTS // math.prod(model.shape or ()))
    return min(IMAGES, 1 << (fitting.bit_length() - 1))
