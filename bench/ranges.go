package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
)

// Range bounds a figure of a strategy in a scenario, or the figure as a ratio to that of another one in the same run:
// ratios are much the same on machines of any speed.
type Range struct {
	Scenario string `json:"scenario"`
	Figure   string `json:"figure"`
	Strategy string `json:"strategy"`
	// To is the strategy that it is a ratio to; "": it is the figure itself.
	To string `json:"to,omitempty"`
	// Min and Max are the bounds; nil: there is none.
	Min *float64 `json:"min,omitempty"`
	Max *float64 `json:"max,omitempty"`
	// Why says what it is worth to hold.
	Why string `json:"why"`
}

// String names what is bounded.
func (r *Range) String() string {
	s := fmt.Sprintf("%s of %s in %s", r.Figure, r.Strategy, r.Scenario)
	if r.To != "" {
		s += ", by that of " + r.To
	}
	return s
}

// LoadRanges reads a file with a list of ranges.
func LoadRanges(path string) (out []Range, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &out); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for i := range out {
		r := &out[i]
		_, err := figureOf(r.Figure)
		_, strategy := find(r.Strategy)
		_, to := find(r.To)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: %s: %w", path, r, err)
		case !strategy, r.To != "" && !to:
			return nil, fmt.Errorf("%s: %s: there is no such strategy", path, r)
		case !slices.ContainsFunc(scenarios, func(s scenario) bool { return s.name == r.Scenario }):
			return nil, fmt.Errorf("%s: %s: there is no such scenario", path, r)
		case r.Min == nil && r.Max == nil:
			return nil, fmt.Errorf("%s: %s: give it min or max", path, r)
		}
	}
	return out, nil
}

// Hold returns an error that names the ranges that the medians of the results of a run with the options are not in, or
// that there are no results for. These are those with the most replicas. tell gets each figure.
func (r *Report) Hold(ranges []Range, o Options, tell func(text string)) error {
	return r.with(o.parameters()).hold(ranges, slices.Max(o.Replicas), tell)
}

func (r *Series) hold(ranges []Range, replicas int, tell func(text string)) error {
	var errs []error
	for i := range ranges {
		bound := &ranges[i]
		of, err := figureOf(bound.Figure)
		if err != nil {
			return err
		}
		value, err := r.median(of, bound.Strategy, bound.Scenario, replicas)
		if err == nil && bound.To != "" {
			var to float64
			if to, err = r.median(of, bound.To, bound.Scenario, replicas); err == nil && to == 0 {
				err = fmt.Errorf("it is 0 of %s", bound.To)
			}
			value /= to
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", bound, err))
			continue
		}
		tell(fmt.Sprintf("%s: %.3g", bound, value))
		switch {
		case bound.Max != nil && value > *bound.Max:
			errs = append(errs, fmt.Errorf("%s: %.3g, at most %.3g is expected: %s", bound, value, *bound.Max, bound.Why))
		case bound.Min != nil && value < *bound.Min:
			errs = append(errs, fmt.Errorf("%s: %.3g, at least %.3g is expected: %s", bound, value, *bound.Min, bound.Why))
		}
	}
	return errors.Join(errs...)
}

// median returns the median of a figure over the rounds.
func (r *Series) median(of figure, strategy, scenario string, replicas int) (float64, error) {
	results := r.of(strategy, replicas, scenario)
	if len(results) == 0 {
		return 0, fmt.Errorf("there is no result of %s with %d replicas", strategy, replicas)
	}
	_, median, _ := of.over(results)
	return median, nil
}
