// Package sieve removes objects from an encoded list before a client decodes it. With Filter, a member lists all
// objects of a kind and keeps its share, and decoding an object takes several times as long as finding its name and
// owner.
package sieve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"sync"

	"github.com/tidwall/gjson"
	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Sieve is for the answers to requests with its context, which may come concurrently.
type Sieve struct {
	// Drop reports whether to remove an object. It is given the name, namespace, UID and owner references.
	Drop func(about *metav1.ObjectMeta) bool
	// Note is called after each answer that the sieve understood, and not concurrently: with the answer's size before and
	// the objects that were removed from it.
	Note func(bytes int, dropped []*metav1.ObjectMeta)

	mu sync.Mutex
}

type key struct{}

// Into returns the context of a request to whose answer the sieve applies, if the transport calls Apply.
func (s *Sieve) Into(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, s) }

// Apply is for transports. It replaces the body of an answer to a request whose context has a sieve. It leaves an
// answer as it is that is no list in JSON or protobuf, or that it was applied to already.
func Apply(req *http.Request, res *http.Response) {
	s, ok := req.Context().Value(key{}).(*Sieve)
	if !ok || res == nil || res.Body == nil || res.StatusCode != http.StatusOK {
		return
	}
	remove := encoding(res.Header)
	if _, again := res.Body.(sifted); again || remove == nil {
		return
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		res.Body = sifted{io.MultiReader(bytes.NewReader(body), res.Body), res.Body} // which fails again
		return
	}
	if rest, dropped, ok := remove(body, s.Drop); ok {
		s.mu.Lock()
		s.Note(len(body), dropped)
		s.mu.Unlock()
		body = rest
	}
	res.Body = sifted{bytes.NewReader(body), res.Body}
	res.ContentLength = int64(len(body))
	res.Header.Set("Content-Length", strconv.Itoa(len(body)))
}

// sifted is the body of an answer that Apply has replaced.
type sifted struct {
	io.Reader
	io.Closer
}

// remover removes objects from an encoded list, and returns them. It returns false if it does not understand the list.
type remover func(list []byte, drop func(*metav1.ObjectMeta) bool) (rest []byte, dropped []*metav1.ObjectMeta, ok bool)

func encoding(of http.Header) remover {
	media, params, err := mime.ParseMediaType(of.Get("Content-Type"))
	if err != nil || params["stream"] != "" || of.Get("Content-Encoding") != "" {
		return nil
	}
	switch media {
	case runtime.ContentTypeJSON:
		return fromJSON
	case runtime.ContentTypeProtobuf:
		return fromProtobuf
	default:
		return nil
	}
}

// fromJSON is a remover for JSON.
func fromJSON(list []byte, drop func(*metav1.ObjectMeta) bool) (rest []byte, dropped []*metav1.ObjectMeta, ok bool) {
	if !gjson.ValidBytes(list) {
		return nil, nil, false
	}
	items := gjson.Get(string(list), "items")
	if !items.IsArray() || items.Index == 0 {
		return nil, nil, false
	}
	rest = append(rest, list[:items.Index]...)
	rest = append(rest, '[')
	kept := 0
	ok = true
	items.ForEach(func(_, item gjson.Result) bool {
		about, understood := metadataOfJSON(item)
		if ok = understood; !ok {
			return false
		}
		if drop(about) {
			dropped = append(dropped, about)
			return true
		}
		if kept++; kept > 1 {
			rest = append(rest, ',')
		}
		rest = append(rest, item.Raw...)
		return true
	})
	rest = append(rest, ']')
	return append(rest, list[items.Index+len(items.Raw):]...), dropped, ok
}

func metadataOfJSON(object gjson.Result) (about *metav1.ObjectMeta, ok bool) {
	about = &metav1.ObjectMeta{}
	var err error
	object.Get("metadata").ForEach(func(name, value gjson.Result) bool {
		switch name.Str {
		case "name":
			about.Name = value.String()
		case "namespace":
			about.Namespace = value.String()
		case "uid":
			about.UID = types.UID(value.String())
		case "ownerReferences":
			err = json.Unmarshal([]byte(value.Raw), &about.OwnerReferences)
		}
		return err == nil
	})
	return about, err == nil && about.Name != ""
}

// protobufPrefix begins every object in protobuf; a runtime.Unknown with the object follows.
var protobufPrefix = []byte("k8s\x00")

// Field numbers of messages of the Kubernetes API, which are the same for all kinds.
const (
	itemsOfList         = 2
	metadataOfObject    = 1
	nameOfMetadata      = 1
	namespaceOfMetadata = 3
	uidOfMetadata       = 5
	ownersOfMetadata    = 13
)

var errEncoding = errors.New("not as expected")

// fromProtobuf is a remover for protobuf.
func fromProtobuf(list []byte, drop func(*metav1.ObjectMeta) bool) (
	rest []byte, dropped []*metav1.ObjectMeta, ok bool,
) {
	message, ok := bytes.CutPrefix(list, protobufPrefix)
	var unknown runtime.Unknown
	if !ok || unknown.Unmarshal(message) != nil {
		return nil, nil, false
	}
	var kept []byte
	err := eachField(unknown.Raw, func(number int, field, value []byte) error {
		if number == itemsOfList {
			about, err := metadataOfProtobuf(value)
			if err != nil {
				return err
			}
			if drop(about) {
				dropped = append(dropped, about)
				return nil
			}
		}
		kept = append(kept, field...)
		return nil
	})
	if err != nil {
		return nil, nil, false
	}
	unknown.Raw = kept
	encoded, err := unknown.Marshal()
	if err != nil {
		return nil, nil, false
	}
	return append(bytes.Clone(protobufPrefix), encoded...), dropped, true
}

func metadataOfProtobuf(object []byte) (*metav1.ObjectMeta, error) {
	about := &metav1.ObjectMeta{}
	err := eachField(object, func(number int, _, metadata []byte) error {
		if number != metadataOfObject {
			return nil
		}
		return eachField(metadata, func(number int, _, value []byte) error {
			switch number {
			case nameOfMetadata:
				about.Name = string(value)
			case namespaceOfMetadata:
				about.Namespace = string(value)
			case uidOfMetadata:
				about.UID = types.UID(value)
			case ownersOfMetadata:
				var ref metav1.OwnerReference
				if err := ref.Unmarshal(value); err != nil {
					return errEncoding
				}
				about.OwnerReferences = append(about.OwnerReferences, ref)
			}
			return nil
		})
	})
	if err == nil && about.Name == "" {
		err = errEncoding
	}
	return about, err
}

// eachField calls do for each field of a message: with its number, all of its bytes, and the bytes of its value if that
// has a length, as texts and messages have.
func eachField(message []byte, do func(number int, field, value []byte) error) error {
	for len(message) > 0 {
		number, kind, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return errEncoding
		}
		n := protowire.ConsumeFieldValue(number, kind, message[tag:])
		if n < 0 {
			return errEncoding
		}
		var value []byte
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(message[tag:])
		}
		if err := do(int(number), message[:tag+n], value); err != nil {
			return err
		}
		message = message[tag+n:]
	}
	return nil
}
