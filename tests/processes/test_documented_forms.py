"""Every option of every verb, as a user types it, on runs and files made once."""

import json
import re
import shlex
import shutil

import pytest

from helpers.made_up_sources import trl
from helpers.micro import words_of
from rlzoo.cli import VERBS, brought, main, parser_of

# verb -> its command lines; `!N` at the end: the exit status.
FORMS = {
    "run": ["grpo {few} run.dir=a --json --store file://{place}/store",
            "recipe=grpo {few} run.dir=b seed=1 --quiet --allow-env HOME",
            "r/recipe.yaml run.dir=c"],
    "resume": ["r", "cut --json --allow-env HOME --trust-remote-code --store file://{place}/s2",
               "file://{place}/s2 --dir again --quiet"],
    "plugins": ["", "estimators", "gae --json", "critic lam"],
    "recipes": ["", "critic --json"],
    "show": ["ppo_gae lam=0.9 --changed", "recipe=grpo --json --allow-env HOME", "r/recipe.yaml",
             "r", "--for trl", "vc_ppo --for verl", "ppo_gae estimator.lam=.9 --json --for slime"],
    "new": ["reward my_reward --dir made --json", "task my_task"],
    "check": ["gae lam=0.9", "length --json", "model={model}",
              "{place}/mine.py:centred couples=batch --map scores=rewards --json"],
    "sweep": ["grpo {few} seed=3 --dir sw --jobs 1 --on local patience=5 --threshold 0.5 "
              "--reference grpo --json --quiet"],
    "compare": ["r r2", "r r2 --json --details --threshold 0.5 --metric accuracy",
                "r r2 --by estimator --reference gae --x steps", "r r2 --csv", "r r2 --latex",
                "r r2 --markdown --html c.html --plots figures", "r short --force"],
    "diagnose": ["ppo_gae estimator=gae,mc --json --batches 0 --horizon 3 --vocabulary 3",
                 "ppo_gae estimator=gae --world graded --critic noisy --noise 0.1 --samples 2 "
                 "--prompts 2 --batches 4 --kl --html d.html --horizon 3",
                 "ppo_gae estimator=gae --fixed-length --cut 2 --horizon 3 --batches 0",
                 "grpo estimator={place}/mine.py:centred --map scores=rewards --horizon 3",
                 "r", "r --parameters --quiet"],
    "trace": ["--rewards 0,0,1 --values .3,.4,.6 --lam .95 --tokens a,b,c --bootstrap 1 --explain",
              "--scores 0,0,1 --kl 0,0.1,0 --values 0,0,0 --estimator gae,mc --json",
              "r --row 1 --step 1 --html t.html", "r --fresh --quiet",
              "r --prompt ab --answer ba --estimator gae", "grpo {few} --allow-env HOME"],
    "doctor": ["r --json", "--environment", "r --control --dir control",
               "r --retrain --runs 1 --dir trials"],
    "report": ["r", "r --out p.html --json", "r --watch 1"],
    "play": ["--out play.html --json"],
    "eval": ["r --json --k 1,2 --responses 3 --prompts 4 --samples 1 --split train --out e.jsonl",
             "r --greedy --checkpoint last --quiet",
             "model.path={model} task=addition eval.samples=4"],
    "import": ["t.csv --out i1 --from csv --seed 3 --row mine --json",
               "t.csv --out i1 --overwrite --eval eval/csv/other --set actor.lr=1e-6",
               "two.csv --out i2 --run b --step n --reward r", "tr --out i3"],
    "model base": ["addition --out start --steps 1 --accuracy 0.9 --lr 1e-3 --seed 1 --right 0.9 "
             "--like nano task.digits=1 --json !1"],
    "model export": ["r m1 --checkpoint last --dtype bfloat16 --json", "r m2 --trust-remote-code",
               "lora m3 --merge"],
    "model sft": ["d.jsonl --model {model} --out f1 --epochs 1 --lr 1e-3 --batch 4 --max-length 30 "
            "--test-fraction 0.2 --seed 1 --device cpu --on-bad-row skip --json",
            "d.jsonl --model {model} --out f2 --epochs 1 --prompt q --response w --chat never"],
    "model reward": ["d.jsonl --model {model} --out w1 --epochs 1 --lr 1e-3 --batch 4 --seed 1 "
               "--max-length 40 --test-fraction 0.2 --device cpu --on-bad-row stop --json "
               "--prompt q --chosen w --rejected l",
               "d.jsonl --per-step --separator ; --model {model} --out w2 --epochs 1 "
               "--prompt q --completions cs --labels ls",
               "d.jsonl --implicit --beta 0.1 --chat never --model {model} --out w3 "
               "--epochs 1 --completion w --label y"],
}  # fmt: skip
# These need agents, another checkout, a GPU, the network, a browser, a template or a second word.
ELSEWHERE = {
    "serve": {"--json", "--allow-env", "--port", "--host", "--store", "--quiet"},
    "play": {"--open"},
    "report": {"--open"},
    "model sft": {"--split", "--subset", "--chat-arg"},
    "model reward": {"--split", "--subset", "--chat-arg"},
    "check": {"--all"},
    "model": {"--json"},
    "sweep": {"--patience", "--store"},
}  # fmt: skip


@pytest.fixture(scope="module")
def place(model_dir, tmp_path_factory):
    """A folder with runs and data."""
    place = tmp_path_factory.mktemp("forms")
    model, *usual = words_of(model_dir)
    usual = [w for w in usual if not w.startswith(("train.steps", "eval.samples"))]
    usual += ["train.steps=2", "eval.samples=4", "task=addition"]
    few = [model, *usual]
    trained = {
        "r": ["ppo_gae", "model=nano", "run.save_batches=2", "checkpoint.keep=2"],
        "r2": ["ppo_gae", "model=nano", "estimator=mc"],
        "short": ["ppo_gae", model, "rollout.temperature=0.5"],
        "lora": ["grpo", model, "model.lora.rank=2"],
    }
    rows = [{"q": f"{i}+1=", "prompt": f"{i}+1=", "response": "ok", "w": "ok", "l": "no",
             "cs": ["a", "b"], "ls": [True, i % 2 == 0], "y": i % 2 == 0}
            for i in range(12)]  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        for name, words in trained.items():
            assert main(["run", *words, *usual, f"run.dir={name}"]) == 0
        shutil.copytree("r", "cut")
        (place / "cut/summary.json").unlink()
        shutil.rmtree(place / "cut/checkpoints/step-00000002")
        (place / "tr").mkdir()
        trl(place / "tr")
        (place / "t.csv").write_text(
            "step,reward,kl,eval/score,eval/other\n1,0.5,0.1,0.5,0.2\n2,0.6,0.1,0.6,0.3\n"
        )
        (place / "two.csv").write_text("run,n,r\na,1,0.5\na,2,0.6\nb,1,0.1\nb,2,0.2\n")
        (place / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (place / "mine.py").write_text(
            "def centred(scores, mask):\n"
            "    totals = (scores * mask).sum(1, keepdim=True)\n"
            "    return (totals - totals.mean()) * mask\n"
        )
        (place / "f.yaml").write_text("estimator: {name: grpo}\nkl: {place: none}\n")
        yield {"place": place, "few": shlex.join(few), "model": model_dir}


@pytest.mark.parametrize("verb", FORMS)
def test_each_form_does_what_it_says(verb, place, capsys, monkeypatch):
    for form in FORMS[verb]:
        *line, status = form.split(" !") if " !" in form else (form, "0")
        words = shlex.split(line[0].format(**place))
        try:
            assert main([*verb.split(), *words]) == int(status), form
        except SystemExit as left:
            raise AssertionError(f"rlzoo {verb} {form}: {capsys.readouterr().err}") from left
        said = capsys.readouterr()
        assert said.out.strip(), form
        if "--json" in words:
            json.loads(said.out)


def test_every_option_is_in_one_of_them():
    """So that a new one is tried here, or elsewhere with an agent or a device."""
    for verb in [*VERBS, *brought()]:
        known = {action.option_strings[-1] for action in parser_of(verb)._actions
                 if action.option_strings} - {"--help"}  # fmt: skip
        tried = set(re.findall(r"--[a-z][\w-]*", " ".join(FORMS.get(verb, []))))
        left = known - tried - ELSEWHERE.get(verb, set()) - {"--allow-env"}
        assert not left, verb
        assert not ELSEWHERE.get(verb, set()) & tried, verb
