"""Many runs on one machine or on many: grids of trials, and tuning."""
