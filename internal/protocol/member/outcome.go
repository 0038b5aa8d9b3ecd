package member

// String returns the outcome in lower case, as in metrics.
func (o Outcome) String() string {
	switch o {
	case OutcomeDone:
		return "done"
	case OutcomeConflict:
		return "conflict"
	case OutcomeMissing:
		return "missing"
	case OutcomeFailed:
		return "failed"
	default:
		return "unknown"
	}
}
