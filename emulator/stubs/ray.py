"""A stub of the head of a Ray cluster: the part of its Jobs API that KubeRay calls."""

from __future__ import annotations

from emulator.stubs.server import Answer, ErrorAnswer, Object, serve

JOBS = "/api/jobs/"
# A job with this id is a program that sends its client elsewhere.
REDIRECTED = "redirected"


def ray_head(port: int, elsewhere: str = "") -> None:
    """Answers that every job has succeeded. KubeRay ends a RayJob only after its submitter, whose end a test decides.

    `elsewhere` is where a redirected job sends its client. No object of the cluster can say it, only a file of a test.

    https://docs.ray.io/en/latest/cluster/running-applications/job-submission/rest.html
    """

    def job(request: Object) -> Answer:
        path = request["path"]
        if not path.startswith(JOBS):
            raise ErrorAnswer(404, "this is a stub of a Ray head")
        job = path.removeprefix(JOBS)
        if elsewhere and job == REDIRECTED:
            raise ErrorAnswer(307, "elsewhere", location=f"{elsewhere}{path}")
        return {"submission_id": job, "status": "SUCCEEDED", "message": "a stub ran nothing"}

    serve(port, {"GET": job})
