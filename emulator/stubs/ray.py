"""A stub of the head of a Ray cluster: the part of its Jobs API that KubeRay calls."""

from __future__ import annotations

from emulator.stubs.server import Answer, ErrorAnswer, Object, serve

JOBS = "/api/jobs/"
# A job with an id that begins so is a program that sends its client to another port of this machine.
REDIRECTED = "redirected-to-"


def ray_head(port: int) -> None:
    """Answers that every job has succeeded. KubeRay ends a RayJob only after its submitter, whose end a test decides.

    https://docs.ray.io/en/latest/cluster/running-applications/job-submission/rest.html
    """

    def job(request: Object) -> Answer:
        path = request["path"]
        if not path.startswith(JOBS):
            raise ErrorAnswer(404, "this is a stub of a Ray head")
        job = path.removeprefix(JOBS)
        if job.startswith(REDIRECTED):
            raise ErrorAnswer(307, "elsewhere", location=f"http://127.0.0.1:{job.removeprefix(REDIRECTED)}{path}")
        return {"submission_id": job, "status": "SUCCEEDED", "message": "a stub ran nothing"}

    serve(port, {"GET": job})
