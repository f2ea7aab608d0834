"""A bundle whose decodes are graphs: same kernels and answers; faults of recording and replaying; what is in it."""

import json

import openai
import pytest

from tests.integration.cuda.conftest import built, unpacked
from tests.integration.cuda.test_faults import LOST, RELEASED
from tests.support.waiting import PATIENCE

RECORDING = (
    "cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags", "cuGraphDestroy"
)  # fmt: skip
PROMPTS = ("the sun", "one", "sea hello", "and one sea")


@pytest.fixture(scope="session")
def recorded(deployment):
    """The root of the image of the same deployment with graphs = true."""
    return unpacked(built(deployment, "tiny-graphs"))


def texts(worker):
    worker.wait_for("ready in")
    client = worker.client()
    options = {"model": "tiny", "max_tokens": 20, "temperature": 0.9}
    found = [
        client.completions.create(prompt=one, seed=at, **options).choices[0].text for at, one in enumerate(PROMPTS)
    ]
    assert worker.end()[0] == 0
    return found


def test_the_plugin_is_all_that_graphs_add(root, recorded):
    sides = [json.loads((side / "pih/bundle.json").read_bytes())["files"] for side in (root, recorded)]
    plain, with_graphs = ({line["path"]: line for line in lines} for lines in sides)
    assert {with_graphs[path]["component"] for path in with_graphs.keys() - plain.keys()} == {"backend/cuda-graphs"}
    assert not [path for path in plain if "graphs" in path]
    cubins = [side / "pih/kernels/pack.cubin" for side in (root, recorded)]
    assert cubins[0].read_bytes() == cubins[1].read_bytes()


def test_texts_are_those_without_graphs(launch, recorded, tmp_path):
    assert texts(launch(root=recorded)) == texts(launch())
    assert (tmp_path / "simgpu.log").read_text() == 2 * RELEASED


def test_the_log_says_that_decodes_are_graphs(launch, recorded):
    assert launch(root=recorded).wait_for("backend/cuda:").endswith("calls a step, of decodes as graphs")


@pytest.mark.parametrize("code", [999, *LOST])
def test_an_error_while_recording_ends_the_start_and_gives_all_back(starts, recorded, code):
    tried = starts(*({"fail": f"{function}:2={code}"} for function in RECORDING), bundle=recorded / "pih")
    for function, (outcome, log) in zip(RECORDING, tried, strict=True):
        assert f"{function}: {LOST.get(code, 'CUDA error 999')}" in outcome["error"].splitlines()[0]
        assert outcome["code"] == 9
        if code == 999 and function in ("cuStreamEndCapture", "cuGraphDestroy"):
            continue  # the driver kept what it refused to give back
        assert log == RELEASED, function


def test_a_launch_that_is_refused_while_it_is_recorded(starts, recorded):
    ((outcome, log),) = starts({"fail": "cuLaunchKernel:5=1"}, bundle=recorded / "pih")
    assert "cuLaunchKernel: CUDA_ERROR_INVALID_VALUE" in outcome["error"]
    assert (outcome["code"], log) == (9, RELEASED)


def test_a_graph_that_is_not_given_back_is_told(starts, recorded):
    ((outcome, log),) = starts({"fail": "cuGraphExecDestroy:1=999"}, bundle=recorded / "pih")
    assert "cuGraphExecDestroy: CUDA error 999" in outcome["stopping"][0]
    assert log == "simgpu: context released, 1 things not given back\n"


def test_a_device_that_is_lost_in_a_replay_ends_requests_and_worker(launch, recorded, tmp_path):
    worker = launch(root=recorded, fail="cuGraphLaunch:3=719")
    worker.wait_for("ready in")
    with pytest.raises(openai.APIError, match="the engine failed: the CUDA driver: cuGraphLaunch"):
        list(worker.client().completions.create(model="tiny", prompt="a", max_tokens=100, temperature=0, stream=True))
    assert worker.process.wait(PATIENCE) == 9
    assert (tmp_path / "simgpu.log").read_text() == RELEASED


def test_another_backend_has_no_graphs(deployment):
    from tests.support.program import pih

    text = (deployment / "tiny-graphs.toml").read_text()
    start, end = text.index("[device]"), text.index("[limits]")
    (deployment / "none.toml").write_text((text[:start] + text[end:]).replace('plugin = "cuda"', 'plugin = "cpu"'))
    done = pih("lock", "--profile", deployment / "none.toml", check=False)
    assert done.returncode == 4
    assert "backend.graphs = true" in done.stderr
