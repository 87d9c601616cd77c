"""The small models that rlzoo generates: a tokenizer of characters and a decoder."""

from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

PAD, EOS, UNK = "<pad>", "<eos>", "<unk>"

CHARACTERS = "\n" + "".join(map(chr, range(32, 127)))  # newline and printable ASCII


def build_tokenizer(more: str = "", every_byte: bool = False) -> PreTrainedTokenizerFast:
    """One token per character of CHARACTERS and `more`; adds no other tokens, so decode(encode(x))
    == x. every_byte: any other character becomes its bytes in UTF-8."""
    rest = [f"<0x{i:02X}>" for i in range(256) if chr(i) not in CHARACTERS] if every_byte else []
    vocabulary = {token: i for i, token in enumerate([PAD, EOS, UNK, *CHARACTERS, *more, *rest])}
    model: Any = models.WordLevel(vocabulary, unk_token=UNK)
    if every_byte:
        model = models.BPE(vocabulary, [], unk_token=UNK, byte_fallback=True)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    fuse = decoders.Fuse()
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), fuse]) if every_byte else fuse
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=EOS,
        unk_token=UNK,
        clean_up_tokenization_spaces=False,
    )


def build_model(architecture: dict[str, Any], tokenizer: PreTrainedTokenizerFast):
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        **architecture,
    )
    model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(
        pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id
    )
    return model


def save(model, tokenizer, out: Path) -> None:
    """Half precision halves the file size; the weights are loaded as float32."""
    model.half().save_pretrained(out)
    tokenizer.save_pretrained(out)
