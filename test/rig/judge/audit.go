package judge

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/resourceversion"
)

// Log is what the checker needs of an audit log.
type Log struct {
	// Writes are the accepted writes of Websites and their children, in the order in which they were answered.
	Writes []Write
	// Tables are the versions of the table, in order; At is not set.
	Tables History
	// Lists are the lists of Websites and of their children's kinds, WatchLists included. A list in pages counts once.
	Lists []List
	// Refused are the writes of Websites and of the other kinds that a fence refused, in the order in which they were
	// answered.
	Refused []Write
	// Others are the accepted writes of ConfigMaps, Deployments and Services that belong to no Website, but those of the
	// table. They are not sorted.
	Others []Write
}

// fenced is in the message of every refusal by a fence.
const fenced = "the fence of rota"

const websites = "websites"

// kinds are those of Websites and of what Websites own, by resource.
var kinds = map[string]schema.GroupKind{
	websites:      {Group: webv1.GroupVersion.Group, Kind: "Website"},
	"configmaps":  {Kind: "ConfigMap"},
	"deployments": {Group: "apps", Kind: "Deployment"},
	"services":    {Kind: "Service"},
}

// Write is an accepted write of a Website or of an object that a Website owns.
type Write struct {
	// User is who wrote, with the Pod that a ServiceAccount's token names: NAME/POD. Resource is "websites",
	// "configmaps", "deployments" or "services".
	User, Verb, Resource, Subresource string
	// Site is the Website, or the one that owns the object.
	Site Site
	// Name is the object's.
	Name string
	// Received and Done are when the API server got the request, and when it had answered.
	Received, Done time.Time
	// Object is the object in the response; nil for an answer without one (a deletion).
	Object *Object
	// Before is the object as it was before, by resourceVersion, as far as the log has it; nil where it was created.
	Before *Object

	// former are the Websites to which the object belonged before.
	former     []Site
	labelsOnly bool // a patch of nothing but labels of Rota, by its body
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
		OwnerReferences   []owner           `json:"ownerReferences"`
	} `json:"metadata"`
	Status struct {
		ObservedGeneration int64 `json:"observedGeneration"`
	} `json:"status"`
	Data map[string]string `json:"data"`
	// Spec is a digest of the spec.
	Spec digest `json:"spec"`

	// partial objects have come as their metadata; Sort gives them the rest of the version before.
	partial bool
}

// digest stands for a part of an object of which matters only whether it changed.
type digest [sha256.Size]byte

// UnmarshalJSON implements json.Unmarshaler. The API server writes what is equal in equal bytes.
func (d *digest) UnmarshalJSON(text []byte) error {
	*d = sha256.Sum256(text)
	return nil
}

// List is a list of all objects of a resource, or the start of a watch that begins with all of them. If One is set, it
// is a list of one object, to learn the present resourceVersion.
type List struct {
	User, Resource string
	At             time.Time
	One            bool
	// Labels and Shards are the selectors in the request.
	Labels, Shards string
}

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
	ResponseStatus struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"responseStatus"`
	RequestReceivedTimestamp time.Time       `json:"requestReceivedTimestamp"`
	StageTimestamp           time.Time       `json:"stageTimestamp"`
	RequestObject            json.RawMessage `json:"requestObject"`
	ResponseObject           json.RawMessage `json:"responseObject"`
}

type user struct {
	Username string              `json:"username"`
	Extra    map[string][]string `json:"extra"`
}

// name tells the Pods of a ServiceAccount apart.
func (u user) name() string {
	if pod := u.Extra["authentication.kubernetes.io/pod-name"]; len(pod) == 1 {
		return u.Username + "/" + pod[0]
	}
	return u.Username
}

// ReadAudit adds an audit log to l, and returns how many bytes it has read: a last line without end is left out. rota
// names the table's ConfigMap. Call Sort when all logs have been read.
func (l *Log) ReadAudit(r io.Reader, rota types.NamespacedName) (read int64, err error) {
	lines := bufio.NewReaderSize(r, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return read, nil
		}
		if err != nil {
			return read, fmt.Errorf("read the audit log: %w", err)
		}
		read += int64(len(line))
		if !worthReading(line) {
			continue
		}
		var e auditEvent
		if err = json.Unmarshal(line, &e); err == nil {
			err = l.add(&e, rota)
		}
		if err != nil {
			return read, fmt.Errorf("read the audit log: %w: %.200s", err, line)
		}
	}
}

// worthReading is a cheap test that most lines fail.
func worthReading(line []byte) bool {
	if bytes.Contains(line, []byte(`"verb":"get"`)) {
		return false
	}
	for resource := range kinds {
		if bytes.Contains(line, []byte(`"resource":"`+resource+`"`)) {
			return true
		}
	}
	return false
}

func (l *Log) add(e *auditEvent, rota types.NamespacedName) error {
	refused := e.ResponseStatus.Code == http.StatusForbidden && strings.Contains(e.ResponseStatus.Message, fenced)
	if (e.ResponseStatus.Code < 200 || e.ResponseStatus.Code > 299) && !refused {
		return nil
	}
	who := e.User.name()
	if e.ImpersonatedUser != nil {
		who = e.ImpersonatedUser.name()
	}
	ref := &e.ObjectRef
	switch e.Verb {
	case "list", "watch":
		return l.addList(e, who)
	case "create", "update", "patch", "delete", "deletecollection":
	default:
		return nil
	}
	if e.Stage != "ResponseComplete" || strings.Contains(e.RequestURI, "dryRun=") {
		return nil
	}
	w := Write{
		User: who, Verb: e.Verb, Resource: ref.Resource, Subresource: ref.Subresource, Name: ref.Name,
		Site:     Site{NamespacedName: types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}},
		Received: e.RequestReceivedTimestamp, Done: e.StageTimestamp,
	}
	if refused {
		l.Refused = append(l.Refused, w)
		return nil
	}
	if len(e.ResponseObject) > 0 {
		var err error
		if w.Object, err = objectOf(e.ResponseObject); err != nil {
			return err
		}
		w.labelsOnly = e.Verb == "patch" && labelsOnly(e.RequestObject)
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
		l.Tables = append(l.Tables, Version{
			Version: w.Object.Metadata.ResourceVersion, User: who, Received: w.Received, Done: w.Done, Table: t,
		})
		return nil
	case ref.Resource == websites:
		if w.Object != nil {
			w.Site.UID = w.Object.Metadata.UID
		}
	case w.Object == nil:
		return nil // nothing tells whose it was
	case w.Object.owner().UID == "":
		w.Site = Site{}
		l.Others = append(l.Others, w)
		return nil
	default:
		w.Site.Name, w.Site.UID = w.Object.owner().Name, w.Object.owner().UID
	}
	l.Writes = append(l.Writes, w)
	return nil
}

func (l *Log) addList(e *auditEvent, who string) error {
	if ref := &e.ObjectRef; ref.Name != "" || kinds[ref.Resource] == (schema.GroupKind{}) {
		return nil
	}
	uri, err := url.ParseRequestURI(e.RequestURI)
	if err != nil {
		return err
	}
	q := uri.Query()
	if e.Verb == "list" && e.Stage == "ResponseComplete" && q.Get("continue") == "" ||
		e.Verb == "watch" && e.Stage == "ResponseStarted" && q.Get("sendInitialEvents") == "true" {
		l.Lists = append(l.Lists, List{
			User: who, Resource: e.ObjectRef.Resource, At: e.RequestReceivedTimestamp, One: q.Get("limit") == "1",
			Labels: q.Get("labelSelector"), Shards: q.Get("shardSelector"),
		})
	}
	return nil
}

type owner struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	UID  string `json:"uid"`
}

// owner returns the Website that owns the object; all empty where none does.
func (o *Object) owner() owner {
	for _, ref := range o.Metadata.OwnerReferences {
		if ref.Kind == "Website" {
			return ref
		}
	}
	return owner{}
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
		return nil, nil // no object is an answer
	}
	o.partial = kind.Kind == "PartialObjectMetadata"
	return &o, nil
}

// labelsOnly says that a patch's body has nothing but labels of Rota.
func labelsOnly(body []byte) bool {
	var patch map[string]map[string]json.RawMessage
	if err := json.Unmarshal(body, &patch); err != nil {
		return false
	}
	text, ok := patch["metadata"]["labels"]
	if !ok || len(patch) != 1 || len(patch["metadata"]) != 1 {
		return false
	}
	var labels map[string]any
	return json.Unmarshal(text, &labels) == nil && len(labels) == len(ours(labels))
}

// Sort sorts everything, finds out what each write replaced, and drops table versions that were written twice without a
// change.
func (l *Log) Sort() {
	type object struct{ resource, uid string }
	last, sites := map[object]*Object{}, map[object][]Site{}
	// What was there before is the next lower resourceVersion, not the write that was answered before.
	// A patch of labels that changed nothing has the version of another's write, and may have been answered first.
	slices.SortStableFunc(l.Writes, func(a, b Write) int {
		if c := resourceversion.Compare(version(a), version(b)); c != 0 || a.labelsOnly == b.labelsOnly {
			return c
		} else if a.labelsOnly {
			return 1
		}
		return -1
	})
	for i := range l.Writes {
		if w := &l.Writes[i]; w.Object != nil {
			o := object{w.Resource, w.Object.Metadata.UID}
			w.Before, last[o] = last[o], w.Object
			if w.former = sites[o]; !slices.Contains(w.former, w.Site) {
				sites[o] = append(slices.Clip(sites[o]), w.Site)
			}
			if w.Object.partial && w.Before != nil {
				w.Object.Data, w.Object.Spec, w.Object.Status = w.Before.Data, w.Before.Spec, w.Before.Status
			}
		}
	}
	slices.SortStableFunc(l.Writes, func(a, b Write) int { return a.Done.Compare(b.Done) })
	slices.SortStableFunc(l.Lists, func(a, b List) int { return a.At.Compare(b.At) })
	slices.SortStableFunc(l.Tables, func(a, b Version) int { return resourceversion.Compare(a.Version, b.Version) })
	l.Tables = slices.CompactFunc(l.Tables, func(a, b Version) bool { return a.Version == b.Version })
}

// Saw adds the versions of the table that were seen and that the log does not have: those of writes that took effect
// although the API server, having waited too long, answered with an error. It is not known when they were written, only
// that it was between their neighbors. Call Sort before.
func (l *Log) Saw(seen History) {
	logged := map[string]bool{}
	for _, v := range l.Tables {
		logged[v.Version] = true
	}
	for _, v := range seen {
		if !logged[v.Version] {
			v.Received, v.Done = time.Time{}, time.Time{}
			l.Tables = append(l.Tables, v)
		}
	}
	slices.SortStableFunc(l.Tables, func(a, b Version) int { return resourceversion.Compare(a.Version, b.Version) })
	for i := 1; i < len(l.Tables); i++ {
		if v := &l.Tables[i]; v.Received.IsZero() {
			v.Received = l.Tables[i-1].Received
		}
	}
	for i := len(l.Tables) - 2; i >= 0; i-- {
		if v := &l.Tables[i]; v.Done.IsZero() {
			v.Done = l.Tables[i+1].Done
		}
	}
}
