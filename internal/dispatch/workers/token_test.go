package workers

import (
	"testing"
)

func FuzzToken(f *testing.F) {
	front := &Front{o: Options{Process: Process{1, 2, 3}}, secret: [32]byte{4}}
	made := token{process: front.o.Process, what: tokenTake, id: 300, worker: "w-1"}
	text := front.seal(made, "user")
	f.Add(text, "user")
	f.Add(text, "another")
	f.Add(text[:len(text)-2], "user")
	f.Add("", "")
	f.Fuzz(func(t *testing.T, in, user string) {
		got, genuine, err := front.parse(in, user)
		if genuine != (in == text && user == "user") {
			t.Errorf("%q for %q is genuine: %v", in, user, genuine)
		}
		if err == nil && genuine && got != made {
			t.Errorf("%+v, want %+v", got, made)
		}
	})
}

// No character of a token can be changed.
func TestToken(t *testing.T) {
	front := &Front{o: Options{Process: NewProcess()}, secret: [32]byte{4}}
	text := front.seal(token{process: front.o.Process, what: tokenStream, id: 1 << 40, worker: "w"}, "user")
	if got, genuine, err := front.parse(text, "user"); err != nil || !genuine || got.id != 1<<40 || got.worker != "w" {
		t.Fatalf("%+v, %v, %v", got, genuine, err)
	}
	for i := range text {
		for _, c := range []byte("Aw_") {
			if text[i] == c {
				continue
			}
			changed := text[:i] + string(c) + text[i+1:]
			if _, genuine, _ := front.parse(changed, "user"); genuine {
				t.Errorf("%q is taken for %q", changed, text)
			}
		}
	}
}
