"""Names of the ledger's objects. gke_ai/pods/programs/ledger.py, which imports nothing from here, has the same."""

# Its namespace, in which no pod of a user is, and its service account and CronJob.
NAMESPACE = "gke-ai-ledger"
LEDGER = "ledger"
# Key of the ConfigMap `ledger`, which the CronJob writes and Pulumi does not know.
KEY = "ledger.json"
# Annotations of a local queue: what its tenant has used, and why the ledger holds it.
BUDGET, HELD = "gke-ai/budget", "gke-ai/held"
# Our choice. It reads Workloads a page of 500 at a time.
REQUEST = {"cpu": "50m", "memory": "128Mi"}
LIMIT = {"memory": "256Mi"}
