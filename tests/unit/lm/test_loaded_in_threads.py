"""Several runs of one process load their models in threads of their own."""

from concurrent.futures import ThreadPoolExecutor

from transformers import PreTrainedModel

from rlzoo.lm.loading import load_causal_lm, resolve_path


def test_models_may_be_loaded_in_threads():
    """transformers turns the tying of weights off while it loads, for the whole process."""
    folder, whole = resolve_path("model/nano"), PreTrainedModel.tie_weights
    try:
        with ThreadPoolExecutor(8) as pool:
            models = list(pool.map(lambda _: load_causal_lm(folder), range(16)))
        assert PreTrainedModel.tie_weights is whole
    finally:
        PreTrainedModel.tie_weights = whole
    for model in models:
        assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
