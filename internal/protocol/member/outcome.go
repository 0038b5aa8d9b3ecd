package member

// String returns the outcome in lower case, as metrics show it.
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
