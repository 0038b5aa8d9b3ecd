package gate

import "testing"

func TestLongWrites(t *testing.T) {
	var l LongWrites
	end, allowed := l.Begin()
	if end != nil {
		t.Fatal("a long write began before any was allowed")
	}
	ended := 0
	l.Withdraw(func() { ended++ })
	if ended != 1 {
		t.Fatal("none is under way, and Withdraw did not say so")
	}
	l.Allow()
	<-allowed
	first, _ := l.Begin()
	second, _ := l.Begin()
	l.Withdraw(func() { ended++ })
	first()
	first()
	if ended != 1 {
		t.Fatal("Withdraw said that none is under way while one is")
	}
	if end, _ := l.Begin(); end != nil {
		t.Fatal("a long write began after they were withdrawn")
	}
	second()
	if ended != 2 {
		t.Fatal("the last one has ended, and Withdraw did not say so")
	}

	l.Allow()
	third, _ := l.Begin()
	l.Withdraw(func() { ended++ })
	l.Allow()
	third()
	if ended != 2 {
		t.Fatal("long writes are allowed again, and Withdraw said that none is under way")
	}
}
