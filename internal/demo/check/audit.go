package check

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/table"
)

// Log is what the checker needs of an audit log.
type Log struct {
	// Writes are the accepted writes of Websites and their ConfigMaps, in the order in which they were answered.
	Writes []Write
	// Tables are the versions of the table, in order; At is not set.
	Tables History
	// Lists are the lists of Websites, WatchLists included; of a list in pages, the first page stands for all.
	Lists []List
}

// Write is an accepted write of a Website or of a ConfigMap that a Website owns.
type Write struct {
	// User is who wrote; Resource is "websites" or "configmaps".
	User, Verb, Resource, Subresource string
	// Site is the Website, or the one that owns the ConfigMap.
	Site types.NamespacedName
	// Name is the object's.
	Name string
	// Received and Done are when the API server got the request, and when it had answered.
	Received, Done time.Time
	// Object is the object in the response; nil for an answer without one (a deletion).
	Object *Object
}

// Object is the part of an object that the checker looks at.
type Object struct {
	Metadata struct {
		UID               string            `json:"uid"`
		ResourceVersion   string            `json:"resourceVersion"`
		Generation        int64             `json:"generation"`
		DeletionTimestamp *time.Time        `json:"deletionTimestamp"`
		Finalizers        []string          `json:"finalizers"`
		Labels            map[string]string `json:"labels"`
		Annotations       map[string]string `json:"annotations"`
		OwnerReferences   []struct {
			Kind string `json:"kind"`
			Name string `json:"name"`
			UID  string `json:"uid"`
		} `json:"ownerReferences"`
	} `json:"metadata"`
	Status struct {
		ObservedGeneration int64 `json:"observedGeneration"`
	} `json:"status"`
	Data map[string]string `json:"data"`
}

// List is a list of all Websites, or the beginning of a watch with all of them; or, where One is set, a list that asks
// for one of them only, to learn the present resourceVersion.
type List struct {
	User string
	At   time.Time
	One  bool
}

var onlyOne = regexp.MustCompile(`[?&]limit=1(&|$)`)

type auditEvent struct {
	Stage            string `json:"stage"`
	Verb             string `json:"verb"`
	RequestURI       string `json:"requestURI"`
	User             user   `json:"user"`
	ImpersonatedUser *user  `json:"impersonatedUser"`
	ObjectRef        struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus           struct{ Code int } `json:"responseStatus"`
	RequestReceivedTimestamp time.Time          `json:"requestReceivedTimestamp"`
	StageTimestamp           time.Time          `json:"stageTimestamp"`
	ResponseObject           json.RawMessage    `json:"responseObject"`
}

type user struct {
	Username string `json:"username"`
}

// ReadAudit adds an audit log to l. rota names the table's ConfigMap. A last line without end is ignored. Call
// Sort when all logs have been read.
func (l *Log) ReadAudit(r io.Reader, rota types.NamespacedName) error {
	lines := bufio.NewReaderSize(r, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the audit log: %w", err)
		}
		if !worthReading(line) {
			continue
		}
		var e auditEvent
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("read the audit log: %w: %.200s", err, line)
		}
		if err := l.add(&e, rota); err != nil {
			return fmt.Errorf("read the audit log: %w: %.200s", err, line)
		}
	}
}

// worthReading is a cheap test that most lines fail.
func worthReading(line []byte) bool {
	return !bytes.Contains(line, []byte(`"verb":"get"`)) &&
		(bytes.Contains(line, []byte(`"resource":"websites"`)) || bytes.Contains(line, []byte(`"resource":"configmaps"`)))
}

func (l *Log) add(e *auditEvent, rota types.NamespacedName) error {
	if e.ResponseStatus.Code < 200 || e.ResponseStatus.Code > 299 {
		return nil
	}
	who := e.User.Username
	if e.ImpersonatedUser != nil {
		who = e.ImpersonatedUser.Username
	}
	ref := &e.ObjectRef
	switch e.Verb {
	case "list", "watch":
		whole := e.Verb == "list" && e.Stage == "ResponseComplete" && !strings.Contains(e.RequestURI, "continue=") ||
			e.Verb == "watch" && e.Stage == "ResponseStarted" && strings.Contains(e.RequestURI, "sendInitialEvents=true")
		if whole && ref.Resource == "websites" && ref.Name == "" {
			l.Lists = append(l.Lists, List{who, e.RequestReceivedTimestamp, onlyOne.MatchString(e.RequestURI)})
		}
		return nil
	case "create", "update", "patch", "delete", "deletecollection":
	default:
		return nil
	}
	if e.Stage != "ResponseComplete" || strings.Contains(e.RequestURI, "dryRun=") {
		return nil
	}
	w := Write{
		User: who, Verb: e.Verb, Resource: ref.Resource, Subresource: ref.Subresource, Name: ref.Name,
		Site:     types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name},
		Received: e.RequestReceivedTimestamp, Done: e.StageTimestamp,
	}
	if len(e.ResponseObject) > 0 {
		var err error
		if w.Object, err = objectOf(e.ResponseObject); err != nil {
			return err
		}
	}
	switch {
	case ref.Resource == "configmaps" && ref.Namespace == rota.Namespace && ref.Name == rota.Name:
		if w.Object == nil {
			return nil
		}
		t, err := table.Decode(w.Object.Data)
		if err != nil {
			return fmt.Errorf("the table: %w", err)
		}
		l.Tables = append(l.Tables, Version{Version: w.Object.Metadata.ResourceVersion, Received: w.Received, Done: w.Done, Table: t})
		return nil
	case ref.Resource == "configmaps":
		owned := false
		if w.Object != nil {
			for _, o := range w.Object.Metadata.OwnerReferences {
				if o.Kind == "Website" {
					w.Site.Name, owned = o.Name, true
				}
			}
		}
		if !owned {
			return nil
		}
	}
	l.Writes = append(l.Writes, w)
	return nil
}

// objectOf returns nil for a Status.
func objectOf(text []byte) (*Object, error) {
	var kind struct {
		Kind string `json:"kind"`
	}
	if err := json.Unmarshal(text, &kind); err != nil || kind.Kind == "Status" {
		return nil, err
	}
	var o Object
	if err := json.Unmarshal(text, &o); err != nil {
		return nil, err
	}
	if o.Metadata.UID == "" {
		return nil, nil //nolint:nilnil // no object is an answer
	}
	return &o, nil
}

// Sort puts everything into order, and drops table versions that were written twice without a change.
func (l *Log) Sort() {
	slices.SortStableFunc(l.Writes, func(a, b Write) int { return a.Done.Compare(b.Done) })
	slices.SortStableFunc(l.Lists, func(a, b List) int { return a.At.Compare(b.At) })
	slices.SortStableFunc(l.Tables, func(a, b Version) int { return table.CompareVersions(a.Version, b.Version) })
	l.Tables = slices.CompactFunc(l.Tables, func(a, b Version) bool { return a.Version == b.Version })
}
