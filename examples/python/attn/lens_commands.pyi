# examples/python/building/attn_stub.py printed this, from the settings of the library.
from collections.abc import Sequence
from typing import Literal, Optional, Union, overload

from attn import Model, Path, Progress, Tokens

from ._query import Answer

Flag = Optional[bool]
Whole = Optional[int]
Number = Optional[float]
Text = Optional[str]
Texts = Union[str, Sequence[str], None]
File = Optional[Path]
Word = Optional[Tokens]

@overload
def query(model: Model, command: Literal['tokens'], /, prompt: Word = ..., *, file: File = ..., exact: Flag = ...,
          ids: Text = ..., bos: Flag = ..., special: Flag = ..., output: File = ..., top: Whole = ...,
          edit: Texts = ..., second: Text = ..., towards: Text = ..., away: Text = ...,
          progress: Progress = ...) -> Answer: ...

@overload
def query(model: Model, command: Literal['loss'], /, prompt: Word = ..., *, file: File = ..., exact: Flag = ...,
          ids: Text = ..., bos: Flag = ..., special: Flag = ..., output: File = ..., edit: Texts = ...,
          second: Text = ..., towards: Text = ..., away: Text = ..., progress: Progress = ...) -> Answer: ...

@overload
def query(model: Model, command: Literal['logit-lens'], /, prompt: Word = ..., *, file: File = ..., exact: Flag = ...,
          ids: Text = ..., bos: Flag = ..., special: Flag = ..., output: File = ..., top: Whole = ...,
          edit: Texts = ..., second: Text = ..., towards: Text = ..., away: Text = ..., saved_scale: Flag = ...,
          tuned: File = ..., progress: Progress = ...) -> Answer: ...

@overload
def query(model: Model, command: Literal['patterns'], /, prompt: Word = ..., *, file: File = ..., exact: Flag = ...,
          ids: Text = ..., bos: Flag = ..., special: Flag = ..., output: File = ..., top: Whole = ...,
          layer: Whole = ..., head: Whole = ..., edit: Texts = ..., second: Text = ..., towards: Text = ...,
          away: Text = ..., progress: Progress = ...) -> Answer: ...

@overload
def query(model: Model, command: Literal['patch'], /, prompt: Word = ..., corrupted: Word = ..., names: Texts = ..., *,
          file: File = ..., exact: Flag = ..., ids: Text = ..., bos: Flag = ..., special: Flag = ...,
          output: File = ..., estimate: Flag = ..., by: Optional[Literal['positions', 'heads', 'position-heads',
          'sources', 'source-heads', 'weights']] = ..., method: Optional[Literal['plain', 'eap', 'eap-ig', 'gim',
          'gim-norm', 'gim-softmax', 'gim-qkv']] = ..., corrupted_ids: Text = ..., pairs: File = ..., each: Flag = ...,
          ci: Flag = ..., token: Text = ..., against: Text = ..., edit: Texts = ..., second: Text = ...,
          towards: Text = ..., away: Text = ..., progress: Progress = ...) -> Answer: ...

@overload
def query(model: Model, command: Literal['path'], /, prompt: Word = ..., corrupted: Word = ..., *, file: File = ...,
          exact: Flag = ..., ids: Text = ..., bos: Flag = ..., special: Flag = ..., output: File = ...,
          from_: Text = ..., to: Text = ..., mlps: Optional[Literal['frozen', 'through']] = ...,
          corrupted_ids: Text = ..., pairs: File = ..., each: Flag = ..., ci: Flag = ..., token: Text = ...,
          against: Text = ..., edit: Texts = ..., second: Text = ..., towards: Text = ..., away: Text = ...,
          progress: Progress = ...) -> Answer: ...

@overload
def query(model: Model, command: Literal['edges'], /, prompt: Word = ..., corrupted: Word = ..., *, file: File = ...,
          ids: Text = ..., bos: Flag = ..., special: Flag = ..., output: File = ..., edges: Whole = ...,
          method: Optional[Literal['plain', 'eap', 'eap-ig', 'gim', 'gim-norm', 'gim-softmax', 'gim-qkv']] = ...,
          steps: Whole = ..., exact: Flag = ..., of: Optional[Literal['edges', 'nodes']] = ..., curve: Flag = ...,
          circuit: File = ..., interactions: Flag = ..., shapley: Text = ..., ablation: Optional[Literal['corrupted',
          'zero', 'mean']] = ..., prune: Number = ..., state: File = ..., resume: Flag = ..., corrupted_ids: Text = ...,
          pairs: File = ..., each: Flag = ..., ci: Flag = ..., token: Text = ..., against: Text = ...,
          edit: Texts = ..., second: Text = ..., towards: Text = ..., away: Text = ...,
          progress: Progress = ...) -> Answer: ...

@overload
def query(model: Model, command: Literal['attribute'], /, prompt: Word = ..., *, file: File = ..., exact: Flag = ...,
          ids: Text = ..., bos: Flag = ..., special: Flag = ..., output: File = ..., at: Whole = ..., token: Text = ...,
          against: Text = ..., edit: Texts = ..., second: Text = ..., towards: Text = ..., away: Text = ...,
          progress: Progress = ...) -> Answer: ...

@overload
def query(model: Model, command: Literal['decompose'], /, prompt: Word = ..., *, file: File = ..., exact: Flag = ...,
          ids: Text = ..., bos: Flag = ..., special: Flag = ..., output: File = ..., top: Whole = ...,
          layer: Whole = ..., at: Whole = ..., token: Text = ..., against: Text = ..., kind: Optional[Literal['streams',
          'streams-mid', 'sublayers', 'attns', 'mlps', 'heads', 'neurons']] = ..., mlp_input: Flag = ...,
          embeds: Flag = ..., apply_ln: Flag = ..., progress: Progress = ...) -> Answer: ...

@overload
def query(model: Model, command: Literal['ablate'], /, prompt: Word = ..., *, file: File = ..., exact: Flag = ...,
          ids: Text = ..., bos: Flag = ..., special: Flag = ..., output: File = ..., pairs: File = ...,
          each: Flag = ..., ci: Flag = ..., at: Whole = ..., token: Text = ..., against: Text = ...,
          progress: Progress = ...) -> Answer: ...

@overload
def query(model: Model, command: Literal['heads'], /, prompt: Word = ..., *, file: File = ..., exact: Flag = ...,
          ids: Text = ..., bos: Flag = ..., special: Flag = ..., output: File = ..., heads: Text = ...,
          pattern: File = ..., measure: Optional[Literal['mul', 'abs']] = ..., exclude_bos: Flag = ...,
          exclude_current_token: Flag = ..., progress: Progress = ...) -> Answer: ...

@overload
def query(model: Model, command: Literal['circuits'], /, *, output: File = ..., top: Whole = ..., layer: Whole = ...,
          head: Whole = ..., progress: Progress = ...) -> Answer: ...

@overload
def query(model: Model, command: Literal['qk'], /, prompt: Word = ..., *, file: File = ..., exact: Flag = ...,
          ids: Text = ..., bos: Flag = ..., special: Flag = ..., output: File = ..., top: Whole = ...,
          layer: Whole = ..., head: Whole = ..., at: Whole = ..., key: Whole = ...,
          progress: Progress = ...) -> Answer: ...

@overload
def query(model: Model, command: Literal['sae'], /, prompt: Word = ..., directory: File = ..., *, file: File = ...,
          exact: Flag = ..., ids: Text = ..., bos: Flag = ..., special: Flag = ..., output: File = ...,
          top: Whole = ..., change: Texts = ..., error: Flag = ..., tokens: Whole = ...,
          progress: Progress = ...) -> Answer: ...

@overload
def query(model: Model, command: Literal['graph'], /, prompt: Word = ..., *, file: File = ..., exact: Flag = ...,
          ids: Text = ..., bos: Flag = ..., special: Flag = ..., output: File = ..., transcoders: File = ...,
          keep: Whole = ..., node_threshold: Number = ..., edge_threshold: Number = ..., pruned: Flag = ...,
          check: Flag = ..., group: File = ..., nodes: Whole = ..., progress: Progress = ...) -> Answer: ...

@overload
def query(model: Model, command: Literal['steer'], /, prompt: Word = ..., *, file: File = ..., exact: Flag = ...,
          ids: Text = ..., bos: Flag = ..., special: Flag = ..., output: File = ..., top: Whole = ...,
          layer: Whole = ..., towards: Text = ..., away: Text = ..., vector: File = ..., strength: Number = ...,
          tokens: Whole = ..., progress: Progress = ...) -> Answer: ...

@overload
def query(model: Model, command: Literal['gradients'], /, prompt: Word = ..., names: Texts = ..., *, file: File = ...,
          exact: Flag = ..., ids: Text = ..., bos: Flag = ..., special: Flag = ..., output: File = ...,
          method: Optional[Literal['plain', 'eap', 'eap-ig', 'gim', 'gim-norm', 'gim-softmax', 'gim-qkv']] = ...,
          at: Whole = ..., token: Text = ..., against: Text = ..., edit: Texts = ..., second: Text = ...,
          towards: Text = ..., away: Text = ..., metric: Optional[Literal['logit', 'log-prob', 'loss']] = ...,
          progress: Progress = ...) -> Answer: ...

@overload
def query(model: Model, command: Literal['pairs'], /, task: Word = ..., *, count: Whole = ..., seed: Whole = ...,
          template: Whole = ..., progress: Progress = ...) -> Answer: ...

@overload
def query(model: Model, command: Literal['process'], /, *, output: File = ..., fold_ln: Flag = ...,
          center_writing_weights: Flag = ..., center_unembed: Flag = ..., fold_value_biases: Flag = ...,
          refactor: Flag = ..., progress: Progress = ...) -> Answer: ...

@overload
def query(model: Model, command: Literal['record'], /, prompt: Word = ..., names: Texts = ..., *, file: File = ...,
          exact: Flag = ..., ids: Text = ..., bos: Flag = ..., special: Flag = ..., output: File = ...,
          lines: File = ..., rows: Whole = ..., shuffle: Whole = ..., resume: Flag = ...,
          progress: Progress = ...) -> Answer: ...

@overload
def query(model: Model, command: Literal['surprisal'], /, texts: Texts = ..., *, column: Text = ...,
          by: Optional[Literal['word', 'token', 'region']] = ..., regions: Text = ..., region_names: Text = ...,
          unit: Optional[Literal['bits', 'nats']] = ..., rank: Flag = ..., top: Whole = ..., layers: Text = ...,
          tuned: File = ..., entropy_reduction: Flag = ..., renyi: Number = ..., spillover: Whole = ...,
          vectors: Texts = ..., pooling: Optional[Literal['mean', 'first', 'last']] = ...,
          punctuation: Optional[Literal['word', 'apart']] = ..., continues: Flag = ..., text_column: Text = ...,
          context: Text = ..., stride: Whole = ..., bos: Flag = ..., special: Flag = ..., file: File = ...,
          progress: Progress = ...) -> Answer: ...

@overload
def query(model: Model, command: Literal['suite'], /, file: File = ..., *, by: Optional[Literal['word', 'token',
          'region']] = ..., unit: Optional[Literal['bits', 'nats']] = ..., pair: Text = ..., group: Text = ...,
          corrected: Flag = ..., punctuation: Optional[Literal['word', 'apart']] = ..., stride: Whole = ...,
          bos: Flag = ..., special: Flag = ..., progress: Progress = ...) -> Answer: ...

@overload
def query(model: Model, command: Literal['columns'], /, file: File = ..., *, progress: Progress = ...) -> Answer: ...

@overload
def query(model: Model, command: Literal['score'], /, requests: Texts = ..., *, task: Optional[Literal['score',
          'generate', 'embed', 'logit-lens', 'top-k', 'tokens', 'classify']] = ..., bos: Flag = ...,
          special: Flag = ..., lines: Flag = ..., carry: Flag = ..., f16_cache: Flag = ...,
          progress: Progress = ...) -> Answer: ...
