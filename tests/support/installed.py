"""A program for an environment in which a wheel is installed."""

# Records what a component and the whole program register, as `registered`.
REGISTERS = """
import json, os, runpy
import pulumi
from gke_ai.components import ModelBucket

registered = []

class Cloud(pulumi.runtime.Mocks):
    def new_resource(self, args):
        registered.append(f"{args.typ.rpartition(':')[2]} {args.name}")
        return None, dict(args.inputs)
    def call(self, args):
        return {"number": "1"}, []

pulumi.runtime.set_mocks(Cloud(), project="mine", stack="test", preview=True)
pulumi.runtime.set_all_config(json.loads(os.environ["PULUMI_CONFIG"]))

def program():
    ModelBucket("mine", name="models-of-mine", location="us-central1", project="my-project")
    runpy.run_module("gke_ai.program", run_name="__main__")

pulumi.runtime.test(program)()
"""
