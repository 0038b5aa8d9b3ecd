package digest

import (
	"testing"
	"time"
	_ "time/tzdata"

	"pgregory.net/rapid"
)

func scheduleOf(t *testing.T, at, zone string) schedule {
	t.Helper()
	in, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	clock, err := time.Parse("15:04", at)
	if err != nil {
		t.Fatal(err)
	}
	return schedule{after: clock.Sub(clock.Truncate(24 * time.Hour)), in: in}
}

func date(t *testing.T, text string) time.Time {
	t.Helper()
	day, err := time.Parse(time.DateOnly, text)
	if err != nil {
		t.Fatal(err)
	}
	return day
}

// TestDue: clocks are set forward and back, at night and at midnight, by an hour and by half of one.
func TestDue(t *testing.T) {
	for _, c := range []struct{ name, at, zone, day, want string }{
		{"UTC", "08:00", "UTC", "2026-01-02", "2026-01-02T08:00:00Z"},
		{"winter", "08:00", "Europe/Berlin", "2026-01-02", "2026-01-02T07:00:00Z"},
		{"summer", "08:00", "Europe/Berlin", "2026-07-02", "2026-07-02T06:00:00Z"},
		{"half an hour", "08:00", "Asia/Kolkata", "2026-01-02", "2026-01-02T02:30:00Z"},
		{"far east", "00:00", "Pacific/Kiritimati", "2026-01-02", "2026-01-01T10:00:00Z"},
		{"far west", "23:59", "Pacific/Niue", "2026-01-02", "2026-01-03T10:59:00Z"},
		{"the day of the change forward", "08:00", "Europe/Berlin", "2026-03-29", "2026-03-29T06:00:00Z"},
		{"the day before", "08:00", "Europe/Berlin", "2026-03-28", "2026-03-28T07:00:00Z"},
		{"left out: when clocks go forward", "02:30", "Europe/Berlin", "2026-03-29", "2026-03-29T01:00:00Z"},
		{"left out, first moment", "02:00", "Europe/Berlin", "2026-03-29", "2026-03-29T01:00:00Z"},
		{"left out, by half an hour", "02:15", "Australia/Lord_Howe", "2026-10-04", "2026-10-03T15:30:00Z"},
		{"midnight is left out", "00:00", "Africa/Cairo", "2026-04-24", "2026-04-23T22:00:00Z"},
		{"left out after midnight", "00:30", "Africa/Cairo", "2026-04-24", "2026-04-23T22:00:00Z"},
		{"twice: the first", "02:30", "Europe/Berlin", "2026-10-25", "2026-10-25T00:30:00Z"},
		{"after it was twice", "03:00", "Europe/Berlin", "2026-10-25", "2026-10-25T02:00:00Z"},
		{"twice in New York", "01:00", "America/New_York", "2026-11-01", "2026-11-01T05:00:00Z"},
		{"twice before midnight", "23:30", "Africa/Cairo", "2026-10-29", "2026-10-29T20:30:00Z"},
		{"midnight after that", "00:00", "Africa/Cairo", "2026-10-30", "2026-10-29T22:00:00Z"},
		{"midnight twice", "00:00", "America/St_Johns", "2010-11-07", "2010-11-07T02:30:00Z"},
		{"left out over midnight", "23:45", "America/Toronto", "1919-03-30", "1919-03-31T04:30:00Z"},
		{"no such day", "08:00", "Pacific/Apia", "2011-12-30", ""},
		{"the day before none", "08:00", "Pacific/Apia", "2011-12-29", "2011-12-29T18:00:00Z"},
		{"the day after none", "08:00", "Pacific/Apia", "2011-12-31", "2011-12-30T18:00:00Z"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := ""
			if due, ok := scheduleOf(t, c.at, c.zone).due(date(t, c.day)); ok {
				got = due.Format(time.RFC3339)
			}
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// TestNewest: the last day that is due, before and after its time, where clocks show a time twice, and where a day is
// left out.
func TestNewest(t *testing.T) {
	for _, c := range []struct{ at, zone, now, day, next string }{
		{"08:00", "UTC", "2026-01-02T07:59:59Z", "2026-01-01", "2026-01-02T08:00:00Z"},
		{"08:00", "UTC", "2026-01-02T08:00:00Z", "2026-01-02", "2026-01-03T08:00:00Z"},
		{"00:00", "UTC", "2026-01-02T00:00:00Z", "2026-01-02", "2026-01-03T00:00:00Z"},
		{"08:00", "Pacific/Kiritimati", "2026-01-01T18:00:00Z", "2026-01-02", "2026-01-02T18:00:00Z"},
		{"02:30", "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-25", "2026-10-26T01:30:00Z"},
		{"02:30", "Europe/Berlin", "2026-10-25T01:30:00Z", "2026-10-25", "2026-10-26T01:30:00Z"},
		{"02:30", "Europe/Berlin", "2026-03-29T00:59:59Z", "2026-03-28", "2026-03-29T01:00:00Z"},
		{"02:30", "Europe/Berlin", "2026-03-29T01:00:00Z", "2026-03-29", "2026-03-30T00:30:00Z"},
		{"00:00", "America/St_Johns", "2010-11-07T02:31:30Z", "2010-11-07", "2010-11-08T03:30:00Z"}, // it shows the 6th again
		{"08:00", "Pacific/Apia", "2011-12-30T17:59:59Z", "2011-12-29", "2011-12-30T18:00:00Z"},
		{"08:00", "Pacific/Apia", "2011-12-30T18:00:00Z", "2011-12-31", "2011-12-31T18:00:00Z"},
	} {
		s := scheduleOf(t, c.at, c.zone)
		now, err := time.Parse(time.RFC3339, c.now)
		if err != nil {
			t.Fatal(err)
		}
		day, _ := s.newest(now)
		if got := day.Format(time.DateOnly); got != c.day {
			t.Errorf("%s in %s at %s: the newest is %s, want %s", c.at, c.zone, c.now, got, c.day)
		}
		if got := s.next(day).Format(time.RFC3339); got != c.next {
			t.Errorf("%s in %s after %s: %s, want %s", c.at, c.zone, c.day, got, c.next)
		}
	}
}

// TestOnceADay: whatever the zone, each day that its clocks show has one digest, they are in order, and each is due when
// clocks show its time, or no more than the length of a change after it.
func TestOnceADay(t *testing.T) {
	zones := []string{"UTC", "Europe/Berlin", "America/New_York", "America/St_Johns", "Australia/Lord_Howe", "Africa/Cairo",
		"Pacific/Apia", "Pacific/Kiritimati", "America/Sao_Paulo", "Asia/Kathmandu", "Antarctica/Troll"}
	rapid.Check(t, func(rt *rapid.T) {
		zone := rapid.SampledFrom(zones).Draw(rt, "zone")
		in, err := time.LoadLocation(zone)
		if err != nil {
			rt.Fatal(err)
		}
		s := schedule{after: time.Duration(rapid.IntRange(0, 1439).Draw(rt, "at")) * time.Minute, in: in}
		from := time.Date(rapid.IntRange(1990, 2036).Draw(rt, "year"), 1, 1, 12, 0, 0, 0, in)
		shown := map[string]bool{}
		for at, end := from, from.AddDate(1, 0, 0); at.Before(end); at = at.Add(30 * time.Minute) {
			shown[at.Format(time.DateOnly)] = true
		}
		var last time.Time
		for day := s.dayOf(from); len(shown) > 0; day = day.AddDate(0, 0, 1) {
			due, ok := s.due(day)
			if ok != shown[day.Format(time.DateOnly)] {
				rt.Fatalf("%s: a digest: %t", day.Format(time.DateOnly), ok)
			}
			if delete(shown, day.Format(time.DateOnly)); !ok {
				continue
			}
			local := due.In(in)
			_, offset := local.Zone()
			late := due.Add(time.Duration(offset) * time.Second).Sub(day.Add(s.after))
			if !due.After(last) || late < 0 || late > 2*time.Hour {
				rt.Fatalf("%s: due at %s, %s after its time; the last was due at %s", day.Format(time.DateOnly), local, late, last)
			}
			if newest, at := s.newest(due); !newest.Equal(day) || !at.Equal(due) {
				rt.Fatalf("%s: when it is due, the newest is %s", day.Format(time.DateOnly), newest)
			}
			if !last.IsZero() {
				if newest, _ := s.newest(due.Add(-time.Second)); !newest.Before(day) {
					rt.Fatalf("%s: before it is due, the newest is %s", day.Format(time.DateOnly), newest)
				}
			}
			last = due
		}
	})
}
