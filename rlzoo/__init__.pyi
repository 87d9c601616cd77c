# What `rlzoo.NAME` is, for editors and type checkers: at run time `__getattr__` finds each by
# name, the lab's by an entry point. Names that a stranger's package adds have no types here.
# `as` makes a name public: jedi wants it.
from rlzoo.errors import RlzooError as RlzooError
from rlzoo.ops import group_count as group_count
from rlzoo.ops import group_degenerate as group_degenerate
from rlzoo.ops import group_mean as group_mean
from rlzoo.ops import group_std as group_std
from rlzoo.ops import group_sum as group_sum
from rlzoo.ops import linear_scan as linear_scan
from rlzoo.ops import masked_mean as masked_mean
from rlzoo.ops import masked_var as masked_var
from rlzoo.ops import next_action as next_action
from rlzoo.ops import td_lambda as td_lambda
from rlzoo.plugin.component import Example as Example
from rlzoo.plugin.hookspecs import component as component
from rlzoo.plugin.hookspecs import hookimpl as hookimpl
from rlzoo.plugin.options import Discount as Discount
from rlzoo.plugin.options import Range as Range
from rlzoo.plugin.permissions import secret as secret
from rlzoo.plugin.registry import load_zoo as load_zoo
from rlzoo.train.start import open_recipe as open_recipe
from rlzoo_lab.api.runs import Run as Run
from rlzoo_lab.api.runs import load_run as load_run
from rlzoo_lab.api.runs import resume as resume
from rlzoo_lab.api.runs import run as run
from rlzoo_lab.api.scores import compare_scores as compare_scores
from rlzoo_lab.api.verbs import check as check
from rlzoo_lab.api.verbs import compare as compare
from rlzoo_lab.api.verbs import diagnose as diagnose
from rlzoo_lab.api.verbs import doctor as doctor
from rlzoo_lab.api.verbs import evaluate as evaluate
from rlzoo_lab.api.verbs import export as export
from rlzoo_lab.api.verbs import report as report
from rlzoo_lab.api.verbs import sweep as sweep
from rlzoo_lab.api.verbs import trace as trace
from rlzoo_lab.api.verbs import verb as verb
from rlzoo_lab.kit import checks as checks
from rlzoo_lab.kit import oracle as oracle
from rlzoo_lab.kit.foreign import parametrize_with_checks as parametrize_with_checks
from rlzoo_lab.kit.new import new as new
from rlzoo_lab.supervised import reward_models as reward_models
from rlzoo_zoo import data as data

__version__: str
