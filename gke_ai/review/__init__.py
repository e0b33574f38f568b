"""What reviewers read before a merge: the report, policies, and the folder for GitOps."""
