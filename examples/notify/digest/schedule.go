package digest

import "time"

// schedule says when the digest of each local day is due. A day is midnight UTC of its date.
type schedule struct {
	after time.Duration // since midnight by the local clock
	in    *time.Location
}

// due returns when the digest of a day is due: when local clocks first show its time of day, or a later one if they are
// set forward over it. ok is false if the day does not exist: a zone that crosses the date line leaves one out.
func (s schedule) due(day time.Time) (due time.Time, ok bool) {
	return s.first(day.Add(s.after)), s.dayOf(s.first(day)).Equal(day)
}

// newest returns the last day whose digest is due by now, and since when it is.
func (s schedule) newest(now time.Time) (day, due time.Time) {
	// Clocks that are set back over midnight show the day before for a second time.
	for day = s.dayOf(now).AddDate(0, 0, 1); ; day = day.AddDate(0, 0, -1) {
		if due, ok := s.due(day); ok && !due.After(now) {
			return day, due
		}
	}
}

// next returns when the first digest after that of a day is due.
func (s schedule) next(day time.Time) time.Time {
	for {
		day = day.AddDate(0, 0, 1)
		if due, ok := s.due(day); ok {
			return due
		}
	}
}

// dayOf returns the day that local clocks show.
func (s schedule) dayOf(t time.Time) time.Time {
	year, month, date := t.In(s.in).Date()
	return time.Date(year, month, date, 0, 0, 0, 0, time.UTC)
}

// first returns when local clocks first show what a clock shows at wall in UTC, or more.
func (s schedule) first(wall time.Time) time.Time {
	for t := wall.Add(-24 * time.Hour); ; { // no zone is as far from UTC
		local := t.In(s.in)
		_, offset := local.Zone()
		_, end := local.ZoneBounds()
		at := wall.Add(-time.Duration(offset) * time.Second)
		if at.Before(t) {
			at = t
		}
		if end.IsZero() || at.Before(end) {
			return at.UTC()
		}
		t = end
	}
}
