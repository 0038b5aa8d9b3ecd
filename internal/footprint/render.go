package footprint

// Markdown renders the page.
func (r *Report) Markdown() ([]byte, error) { return nil, nil }
