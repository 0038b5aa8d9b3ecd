package workers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/dispatch/wire"
	"github.com/rota-dev/rota/test/require"
)

// exchange is a request of the page, and its answer.
type exchange struct {
	method, path, body string
	status             int
	answers            []any
}

var (
	httpBlock = regexp.MustCompile("(?ms)^```http\n(.*?)^```")
	firstLine = regexp.MustCompile(`^(GET|POST) (/\S+)$`)
	variable  = regexp.MustCompile(`[A-Z]+-\d+`)
)

// exchanges reads the page's conversation.
func exchanges(t *testing.T) (out []exchange) {
	t.Helper()
	page, err := os.ReadFile("../../../docs/dispatch.md")
	require.NoError(t, err)
	for _, block := range httpBlock.FindAllSubmatch(page, -1) {
		parts := strings.Split(strings.TrimSpace(string(block[1])), "\n\n")
		if len(parts)%2 != 0 {
			t.Fatalf("a request without an answer:\n%s", block[1])
		}
		for pair := range slices.Chunk(parts, 2) {
			head, body, _ := strings.Cut(pair[0], "\n")
			m := firstLine.FindStringSubmatch(head)
			status, answer, _ := strings.Cut(pair[1], "\n")
			code, err := strconv.Atoi(status)
			if m == nil || err != nil {
				t.Fatalf("not an exchange:\n%s\n\n%s", pair[0], pair[1])
			}
			e := exchange{method: m[1], path: m[2], body: body, status: code}
			for d := json.NewDecoder(strings.NewReader(answer)); d.More(); {
				var v any
				if err := d.Decode(&v); err != nil {
					t.Fatalf("%s: %v", answer, err)
				}
				e.answers = append(e.answers, v)
			}
			out = append(out, e)
		}
	}
	return out
}

// same compares an answer with that of the page: "…" is any text, numbers are any, and a variable is bound or the same.
func same(at string, want, got any, bound map[string]string) error {
	switch want := want.(type) {
	case map[string]any:
		got, ok := got.(map[string]any)
		if !ok {
			return fmt.Errorf("%s: %v is no object", at, got)
		}
		for key := range got {
			if _, there := want[key]; !there {
				return fmt.Errorf("%s: %s is not on the page", at, key)
			}
		}
		for key := range want {
			if _, there := got[key]; !there {
				return fmt.Errorf("%s: there is no %s", at, key)
			}
			if err := same(at+"."+key, want[key], got[key], bound); err != nil {
				return err
			}
		}
	case []any:
		got, ok := got.([]any)
		if !ok || len(got) != len(want) {
			return fmt.Errorf("%s: %v, want %d", at, got, len(want))
		}
		for i := range want {
			if err := same(at, want[i], got[i], bound); err != nil {
				return err
			}
		}
	case string:
		text, ok := got.(string)
		switch {
		case !ok || text == "":
			return fmt.Errorf("%s: %v is no text", at, got)
		case variable.FindString(want) == want:
			bound[want] = text
		case want != "…" && want != text:
			return fmt.Errorf("%s: %q, want %q", at, text, want)
		}
	case float64:
		n, ok := got.(float64)
		if !ok || want == float64(int(want)) && want < 5 && !strings.HasSuffix(at, ".epoch") && n != want {
			return fmt.Errorf("%s: %v, want %v", at, got, want)
		}
	}
	return nil
}

// TestPage holds the conversation of docs/dispatch.md with a dispatcher.
func TestPage(t *testing.T) {
	t.Parallel()
	x, all := newTier(t, 30*time.Second, 1)
	a, worker := all[0], x.user("worker", true)
	x.change("settings", false)
	page := exchanges(t)
	if len(page) < 10 {
		t.Fatalf("found %d exchanges", len(page))
	}
	bound := map[string]string{}
	for _, e := range page {
		body := variable.ReplaceAllStringFunc(e.body, func(name string) string {
			if value := bound[name]; value != "" {
				return value
			}
			return name
		})
		what := e.method + " " + e.path + "\n" + e.body
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, e.method, a.URL+e.path, strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Content-Type", wire.TypeJSON)
		answer, err := worker.Do(r)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		defer func() { _ = answer.Body.Close() }()
		if answer.StatusCode != e.status {
			text, _ := io.ReadAll(answer.Body)
			t.Fatalf("%s: %d, want %d: %s", what, answer.StatusCode, e.status, bytes.TrimSpace(text))
		}
		d := json.NewDecoder(answer.Body)
		for _, want := range e.answers {
			var got any
			if err := d.Decode(&got); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if err := same("", want, got, bound); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
}
