package v1beta1

import (
	stdjson "encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
)

// Object is implemented by every kind of this package.
//
// +kubebuilder:object:generate=false
type Object interface {
	metav1.Object
	runtime.Object
	// Unreadable says which fields of the object could not be decoded, and why; nil if all could. Such an object does
	// not have the desired state: the fields that could not be decoded are missing. A controller must change nothing
	// because of it, and must not write the object back, only a status.
	Unreadable() error
}

// A client fails to list all objects of a kind when it cannot decode one. So the kinds decode what they can, and
// Unreadable identifies the objects that are incomplete.

// UnmarshalJSON decodes the fields that can be decoded, and keeps the errors of the others for Unreadable.
func (o *StorageCluster) UnmarshalJSON(data []byte) error {
	type plain StorageCluster
	return decode(data, (*plain)(o), &o.DecodeError)
}

// UnmarshalJSON decodes the fields that can be decoded, and keeps the errors of the others for Unreadable.
func (o *StorageUpgrade) UnmarshalJSON(data []byte) error {
	type plain StorageUpgrade
	return decode(data, (*plain)(o), &o.DecodeError)
}

// UnmarshalJSON decodes the fields that can be decoded, and keeps the errors of the others for Unreadable.
func (o *NodeJob) UnmarshalJSON(data []byte) error {
	type plain NodeJob
	return decode(data, (*plain)(o), &o.DecodeError)
}

// UnmarshalJSON decodes the fields that can be decoded, and keeps the errors of the others for Unreadable.
func (o *NFSServer) UnmarshalJSON(data []byte) error {
	type plain NFSServer
	return decode(data, (*plain)(o), &o.DecodeError)
}

// UnmarshalJSON decodes the fields that can be decoded, and keeps the errors of the others for Unreadable.
func (o *StorageNode) UnmarshalJSON(data []byte) error {
	type plain StorageNode
	return decode(data, (*plain)(o), &o.DecodeError)
}

// UnmarshalJSON decodes the fields that can be decoded, and keeps the errors of the others for Unreadable.
func (o *Volume) UnmarshalJSON(data []byte) error {
	type plain Volume
	return decode(data, (*plain)(o), &o.DecodeError)
}

// UnmarshalJSON decodes the fields that can be decoded, and keeps the errors of the others for Unreadable.
func (o *Snapshot) UnmarshalJSON(data []byte) error {
	type plain Snapshot
	return decode(data, (*plain)(o), &o.DecodeError)
}

// Decoding is a part of every kind. It is no field of the object.
//
// +kubebuilder:object:generate=false
type Decoding struct {
	DecodeError string `json:"-"`
}

// Unreadable returns DecodeError as an error. See Object.
func (d *Decoding) Unreadable() error {
	if d.DecodeError == "" {
		return nil
	}
	return errors.New(d.DecodeError)
}

// decode reads an object. Fields that cannot be read are left out and named in wrong.
func decode(data []byte, into any, wrong *string) error {
	*wrong = ""
	err := json.Unmarshal(data, into)
	if err == nil {
		return nil
	}
	if len(data) == 0 || data[0] != '{' || !stdjson.Valid(data) {
		return err // no object at all
	}
	var s salvage
	s.read(data, reflect.ValueOf(into).Elem(), "")
	if len(s.wrong) == 0 {
		return err
	}
	*wrong = s.String()
	return nil
}

// salvage reads what can be read of an object, field by field.
type salvage struct{ wrong []string }

var unmarshaler = reflect.TypeFor[stdjson.Unmarshaler]()

// read decodes into v, or what of it can be decoded.
func (s *salvage) read(data []byte, v reflect.Value, path string) {
	err := json.Unmarshal(data, v.Addr().Interface())
	if err == nil {
		return
	}
	v.SetZero()
	var fields map[string]stdjson.RawMessage
	var items []stdjson.RawMessage
	switch kind := v.Kind(); {
	case kind == reflect.Pointer:
		into := reflect.New(v.Type().Elem())
		if s.read(data, into.Elem(), path); !into.Elem().IsZero() {
			v.Set(into)
		}
	case reflect.PointerTo(v.Type()).Implements(unmarshaler):
		s.note(path, data, err)
	case kind == reflect.Struct && json.Unmarshal(data, &fields) == nil:
		s.readFields(fields, v, path)
	case kind == reflect.Slice && json.Unmarshal(data, &items) == nil:
		v.Set(reflect.MakeSlice(v.Type(), len(items), len(items)))
		for i, item := range items {
			s.read(item, v.Index(i), fmt.Sprintf("%s[%d]", path, i))
		}
	default:
		s.note(path, data, err)
	}
}

func (s *salvage) readFields(fields map[string]stdjson.RawMessage, v reflect.Value, path string) {
	for i := range v.NumField() {
		name, options, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if slices.Contains(strings.Split(options, ","), "inline") {
			s.readFields(fields, v.Field(i), path)
		} else if data, given := fields[name]; given {
			s.read(data, v.Field(i), strings.TrimPrefix(path+"."+name, "."))
		}
	}
}

// The description of an unreadable object fits into a condition and an event.
const mostNamed = 5

func (s *salvage) note(path string, value []byte, cause error) {
	why, _, _ := strings.Cut(strings.TrimPrefix(cause.Error(), "json: "), "\n")
	s.wrong = append(s.wrong, fmt.Sprintf("%s: %.80s cannot be read: %.160s", path, value, why))
}

func (s *salvage) String() string {
	named := s.wrong[:min(len(s.wrong), mostNamed)]
	text := strings.Join(named, "; ")
	if rest := len(s.wrong) - len(named); rest > 0 {
		text += fmt.Sprintf("; and %d more", rest)
	}
	return strings.ToValidUTF8(text, "?")
}
