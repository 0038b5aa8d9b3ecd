package haproxy

import (
	"bytes"
	"encoding/csv"
	"fmt"
)

// Table parses an answer in CSV, such as the answer to `show stat`. It returns a map from column names to values for
// each row.
func Table(text []byte) ([]map[string]string, error) {
	all, err := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(text, []byte("# ")))).ReadAll()
	if err != nil || len(all) == 0 {
		return nil, fmt.Errorf("HAProxy's answer is not a table: %q: %w", text, err)
	}
	rows := make([]map[string]string, len(all)-1)
	for i, values := range all[1:] {
		rows[i] = map[string]string{}
		for j, name := range all[0] {
			rows[i][name] = values[j]
		}
	}
	return rows, nil
}
