"""The policy pack: rules over the resources that a program registers, whatever its own configuration looks like."""
