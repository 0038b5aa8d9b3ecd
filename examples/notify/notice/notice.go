// Package notice has what is told, and the forms in which it is sent.
package notice

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Type says what happened to an object.
type Type string

// The types of notices.
const (
	Created Type = "created"
	Changed Type = "changed"
	Failing Type = "failing"
	Deleted Type = "deleted"
)

// Types are all of them.
var Types = []Type{Created, Changed, Failing, Deleted}

// The reasons for which objects fail.
const (
	CrashLoopBackOff = "CrashLoopBackOff"
	ImagePullBackOff = "ImagePullBackOff"
	JobFailed        = "JobFailed"
	Unavailable      = "Unavailable"
)

// Object says which object a notice is about.
type Object struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Namespace  string    `json:"namespace,omitempty"`
	Name       string    `json:"name"`
	UID        types.UID `json:"uid"`
}

// String names the object to people.
func (o Object) String() string {
	if o.Namespace == "" {
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

// Notice is one thing to tell.
type Notice struct {
	// ID is the same whenever and by whomever the notice is sent, and no other notice has it. By it receivers know a
	// notice that they got before.
	ID      string    `json:"id"`
	Type    Type      `json:"type"`
	Object  Object    `json:"object"`
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	Time    time.Time `json:"time"`
}

// ContentType is that of CloudEvents in structured mode.
const ContentType = "application/cloudevents+json"

// typePrefix begins the types of CloudEvents.
const typePrefix = "com.example.notify."

// event is a CloudEvent 1.0 in the JSON format.
type event struct {
	SpecVersion     string    `json:"specversion"`
	ID              string    `json:"id"`
	Source          string    `json:"source"`
	Type            string    `json:"type"`
	Subject         string    `json:"subject"`
	Time            time.Time `json:"time"`
	DataContentType string    `json:"datacontenttype"`
	Data            any       `json:"data"`
}

type data struct {
	Object  Object `json:"object"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// Head returns what distinguishes the notice from others, and since when it waits to be told.
func (n Notice) Head() (id string, at time.Time) { return n.ID, n.Time }

// CloudEvent returns the notice as a CloudEvent in structured mode.
func (n Notice) CloudEvent(source string) ([]byte, error) {
	subject := n.Object.Kind + "/" + n.Object.Name
	if n.Object.Namespace != "" {
		subject = n.Object.Namespace + "/" + subject
	}
	return json.Marshal(event{
		SpecVersion: "1.0", ID: n.ID, Source: source, Type: typePrefix + string(n.Type), Subject: subject,
		Time: n.Time.UTC(), DataContentType: "application/json",
		Data: data{Object: n.Object, Reason: n.Reason, Message: n.Message},
	})
}

// slackEscape escapes the characters that Slack's markup uses, so that an object's name cannot mention everybody.
var slackEscape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// Slack returns the notice as the payload of an incoming webhook of Slack.
func (n Notice) Slack(source string) ([]byte, error) {
	text := fmt.Sprintf("*%s*: %s", n.Type, slackEscape.Replace(n.Object.String()))
	if n.Reason != "" {
		text += ": " + slackEscape.Replace(n.Reason)
	}
	if n.Message != "" {
		text += "\n> " + slackEscape.Replace(strings.ReplaceAll(n.Message, "\n", " "))
	}
	text += fmt.Sprintf("\n_%s, %s_", slackEscape.Replace(source), n.Time.UTC().Format(time.RFC3339))
	return json.Marshal(map[string]string{"text": text})
}
