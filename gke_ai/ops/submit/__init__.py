"""`gke-ai submit`: a run from a kubeconfig alone, checked before anything is created, and then followed."""
