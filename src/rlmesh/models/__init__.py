"""Models: the author's class, the four predict corners, chunks and what a predict is told."""

from rlmesh.models.chunks import ChunkQueue, check_horizon, split_chunk
from rlmesh.models.context import EpisodeContexts, PredictContext, predict_seed
from rlmesh.models.corners import Corners
from rlmesh.models.model import NO_ADAPTER, Model, as_model, model_corners

__all__ = [
    "NO_ADAPTER",
    "ChunkQueue",
    "Corners",
    "EpisodeContexts",
    "Model",
    "PredictContext",
    "as_model",
    "check_horizon",
    "model_corners",
    "predict_seed",
    "split_chunk",
]
