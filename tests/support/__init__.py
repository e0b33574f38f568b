"""What tests share: good configurations, recorders, local servers, snapshots."""
