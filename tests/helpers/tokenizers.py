"""Tokenizers of letters, of the two kinds that most models have."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers


def byte_level(special):
    """Bytes, as GPT-2's, after the special tokens."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE({t: i for i, t in enumerate([*special, *letters])}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    return core


def metaspace(pieces, merges=(), scheme="first", **more):
    """Pieces with ▁ for a space, as SentencePiece's: a text loses its first space."""
    core = Tokenizer(models.BPE({t: i for i, t in enumerate(pieces)}, [*merges], **more))
    core.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    core.decoder = decoders.Metaspace(prepend_scheme=scheme)
    return core
