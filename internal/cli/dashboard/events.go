package dashboard

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

const (
	// aliveEvery is the interval of "alive" events. The page considers the connection lost after 5 s of silence.
	aliveEvery = 2 * time.Second
	// slowest is how long a page may take to receive an event. Then it is disconnected, and reconnects.
	slowest = 10 * time.Second
)

// message is the data of an event. Ages are in seconds when it is sent.
type message struct {
	// Age is the age of the last Rota, or nil if there was none.
	Age *float64 `json:"age,omitempty"`
	// Rota is omitted if the page already has it.
	Rota json.RawMessage `json:"rota,omitempty"`
	// Error is why nothing newer can be read.
	Error string `json:"error,omitempty"`
}

// events streams states as server-sent events: "rota" with a Rota, "lost" with an error, and "alive".
func (h *handler) events(w http.ResponseWriter, r *http.Request) {
	leave := h.hub.join()
	defer leave()
	w.Header().Set("Content-Type", "text/event-stream")
	alive := time.NewTicker(aliveEvery)
	defer alive.Stop()
	stream := http.NewResponseController(w)
	shown := false // whether the page has anything to show
	for {
		now, changed := h.hub.latest()
		event, m := "rota", now.message()
		switch {
		case now.err != nil:
			event = "lost"
			if shown {
				m.Rota = nil
			}
		case now.rota == nil:
			event = "alive"
		}
		shown = shown || m.Rota != nil
		if err := send(w, stream, event, m); err != nil {
			return
		}
		for waiting := true; waiting; {
			select {
			case <-r.Context().Done():
				return
			case <-changed:
				waiting = false
			case <-alive.C:
				if err := send(w, stream, "alive", message{}); err != nil {
					return
				}
			}
		}
	}
}

func (s state) message() message {
	m := message{Rota: s.rota}
	if s.rota != nil {
		age := max(0, time.Since(s.at).Seconds())
		m.Age = &age
	}
	if s.err != nil {
		m.Error = s.err.Error()
	}
	return m
}

func send(w http.ResponseWriter, stream *http.ResponseController, event string, m message) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := stream.SetWriteDeadline(time.Now().Add(slowest)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event, text); err != nil {
		return err
	}
	return stream.Flush()
}
