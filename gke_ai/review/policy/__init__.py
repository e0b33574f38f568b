"""The policy pack: rules over the resources that a Pulumi program registers."""
