package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

const (
	// sendTimeout bounds one request to the receiver.
	sendTimeout = 5 * time.Second
	// longestWait bounds what a receiver's Retry-After can ask for.
	longestWait = time.Hour
	// EpochHeader has the number that grows when an object moves to another replica.
	EpochHeader = "Notify-Epoch"
)

// webhook is where notifications go.
type webhook struct {
	url    string
	client *http.Client
}

func newWebhook(url string) webhook { return webhook{url, &http.Client{Timeout: sendTimeout}} }

// laterError is returned if the receiver says when to try again.
type laterError struct{ after time.Duration }

func (e *laterError) Error() string { return fmt.Sprintf("the receiver asks to wait for %v", e.after) }

// send posts a notification. Anything but a 2xx answer is an error, and the notification has to be sent again.
func (w webhook) send(ctx context.Context, n *Notification, epoch uint64, moves bool) error {
	body, err := json.Marshal(n)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if moves {
		req.Header.Set(EpochHeader, strconv.FormatUint(epoch, 10))
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return fmt.Errorf("send notification %s: %w", n.ID, err)
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be used again
	if resp.StatusCode/100 == 2 {
		return nil
	}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		return &laterError{min(time.Duration(seconds)*time.Second, longestWait)}
	}
	return fmt.Errorf("send notification %s: the receiver answers %s", n.ID, resp.Status)
}
