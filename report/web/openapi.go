package web

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/report/facts"
)

// object is a JSON object of the document.
type object map[string]any

// enumerations are the values of the types that have few. Where a value may also be missing, it is left out.
var enumerations = map[reflect.Type][]string{
	reflect.TypeFor[v1beta1.Phase]():          words(phases),
	reflect.TypeFor[v1beta1.ClusterPhase]():   words(clusterPhases),
	reflect.TypeFor[NodePhase]():              words(nodePhases),
	reflect.TypeFor[v1beta1.Mode]():           words([]v1beta1.Mode{v1beta1.ModeFilesystem, v1beta1.ModeBlock}),
	reflect.TypeFor[v1beta1.Provisioning]():   words([]v1beta1.Provisioning{v1beta1.Thin, v1beta1.Thick}),
	reflect.TypeFor[v1beta1.OnNodeLoss]():     words([]v1beta1.OnNodeLoss{v1beta1.RetainOnNodeLoss, v1beta1.DeleteOnNodeLoss}),
	reflect.TypeFor[v1beta1.SourceKind]():     words([]v1beta1.SourceKind{v1beta1.SourceVolume, v1beta1.SourceSnapshot}),
	reflect.TypeFor[v1beta1.NFSPhase]():       words(serverPhases),
	reflect.TypeFor[v1beta1.NFSAccess]():      words([]v1beta1.NFSAccess{v1beta1.NFSReadWrite, v1beta1.NFSReadOnly, v1beta1.NFSNone}),
	reflect.TypeFor[facts.Level]():            words([]facts.Level{facts.Problem, facts.Warning, facts.Note, facts.Fine}),
	reflect.TypeFor[facts.Verb]():             words(facts.Verbs),
	reflect.TypeFor[metav1.ConditionStatus](): words([]metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown}),
}

var clusterPhases = []v1beta1.ClusterPhase{
	v1beta1.ClusterCreating, v1beta1.ClusterRunning, v1beta1.ClusterPending, v1beta1.ClusterDegraded, v1beta1.ClusterUpgrading, v1beta1.ClusterPaused, v1beta1.ClusterTerminating,
}

// references are what the fields of references mean, which are types of the kinds.
var references = map[reflect.Type]map[string]string{
	reflect.TypeFor[v1beta1.NamespacedReference](): {"namespace": "Namespace of the object.", "name": "Name of the object."},
	reflect.TypeFor[v1beta1.SourceReference]():     {"kind": "Kind of the object.", "name": "Name of the object, which is its ID."},
}

// document describes all that is served, in OpenAPI 3.0.
func document() ([]byte, error) {
	d := describer{schemas: object{}}
	paths := object{}
	for _, r := range apiRoutes() {
		paths[r.path] = object{"get": d.operation(r)}
	}
	for _, path := range documentPaths {
		paths[path] = object{"get": object{
			"summary": "This document.", "responses": d.responses(object{"type": "object", "additionalProperties": true}, "401", "403", "405", "413"),
		}}
	}
	for path, summary := range map[string]string{
		"/livez": "Whether the process is not stuck.", "/readyz": "Whether it can do its work.",
	} {
		text := object{"text/plain": object{"schema": object{"type": "string"}}}
		paths[path] = object{"get": object{"summary": summary, "security": []any{}, "responses": object{
			"200": object{"description": "Yes.", "content": text}, "500": object{"description": "No; the checks that failed, and why.", "content": text},
		}}}
	}
	if d.err != nil {
		return nil, d.err
	}
	return json.Marshal(object{
		"openapi": "3.0.3",
		"info": object{
			"title": "Holdfast", "version": "v1",
			"description": "What is stored in a cluster, and where. Nothing can be changed here. Sizes are in bytes.",
		},
		"security": []any{object{"basic": []any{}}},
		"paths":    paths,
		"components": object{
			"schemas":         d.schemas,
			"securitySchemes": object{"basic": object{"type": "http", "scheme": "basic"}},
		},
	})
}

type describer struct {
	schemas object
	err     error
}

var statusTexts = map[string]string{
	"400": "A parameter is not allowed, or its value.", "401": "User and password are missing or wrong.", "403": "The cluster names no user that might come in.",
	"404": "There is no such thing.", "405": "Only GET and HEAD are allowed.", "413": "The request has a body.", "503": "The cluster could not be read so far.",
}

var inPath = regexp.MustCompile(`{([a-z]+)}`)

func (d *describer) operation(r route) object {
	parameters := []any{}
	statuses := []string{"400", "401", "403", "405", "413", "503"}
	for _, name := range inPath.FindAllStringSubmatch(r.path, -1) {
		parameters = append(parameters, object{"name": name[1], "in": "path", "required": true, "description": "Its name.", "schema": object{"type": "string"}})
	}
	if len(parameters) > 0 || r.path == "/api/v1/cluster" {
		statuses = append(statuses, "404")
	}
	for _, p := range r.parameters {
		parameters = append(parameters, object{"name": p.name, "in": "query", "description": p.doc, "schema": p.schema()})
	}
	responses := d.responses(d.schema(reflect.TypeOf(r.answer)), statuses...)
	responses["304"] = object{"description": "Nothing has changed since the answer whose ETag is in If-None-Match."}
	return object{"summary": r.summary, "parameters": parameters, "responses": responses}
}

func (p parameter) schema() object {
	s := object{"type": "string"}
	if p.most > 0 {
		s = object{"type": "integer", "minimum": p.least, "maximum": p.most, "default": p.usual}
	}
	if len(p.allowed) > 0 {
		s["enum"] = p.allowed
	}
	return s
}

func (d *describer) responses(answer object, failures ...string) object {
	all := object{"200": d.response(answer, "The answer.")}
	for _, status := range failures {
		all[status] = d.response(d.schema(reflect.TypeFor[Error]()), statusTexts[status])
	}
	return all
}

func (*describer) response(schema object, description string) object {
	return object{"description": description, "content": object{"application/json": object{"schema": schema}}}
}

// schema describes a type. What has fields gets a name and is referred to.
func (d *describer) schema(t reflect.Type) object {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case t.Kind() == reflect.Pointer:
		return d.schema(t.Elem())
	case t.Kind() == reflect.Slice:
		return object{"type": "array", "items": d.schema(t.Elem())}
	case t.Kind() == reflect.String && enumerations[t] != nil:
		return object{"type": "string", "enum": enumerations[t]}
	case t.Kind() == reflect.String && t == reflect.TypeFor[string]():
		return object{"type": "string"}
	case t.Kind() == reflect.Bool:
		return object{"type": "boolean"}
	case t.Kind() == reflect.Int, t.Kind() == reflect.Int64:
		return object{"type": "integer", "format": "int64"}
	case t.Kind() == reflect.Struct:
		return d.structure(t)
	}
	d.err = fmt.Errorf("type %s of an answer has no description", t)
	return object{}
}

func (d *describer) structure(t reflect.Type) object {
	name := schemaName(t)
	ref := object{"$ref": "#/components/schemas/" + name}
	if d.schemas[name] != nil {
		return ref
	}
	properties, required := object{}, []string{}
	d.schemas[name] = object{"type": "object", "properties": properties, "required": &required, "additionalProperties": false}
	for _, f := range reflect.VisibleFields(t) { // with those of what is embedded
		if f.Anonymous {
			continue
		}
		field, optional := strings.CutSuffix(f.Tag.Get("json"), ",omitempty")
		about := cmp.Or(f.Tag.Get("doc"), references[t][field])
		if field == "" || about == "" {
			d.err = fmt.Errorf("field %s of %s has no name or no description", f.Name, t)
		}
		// A description beside a reference would be ignored, so the reference goes one level down.
		property := d.schema(f.Type)
		if property["$ref"] != nil {
			property = object{"allOf": []any{property}}
		}
		property["description"] = about
		properties[field] = property
		if !optional {
			required = append(required, field)
		}
	}
	return ref
}

// schemaName of List[...Volume] is VolumeList.
func schemaName(t reflect.Type) string {
	item, ok := t.FieldByName("Items")
	if !ok {
		return t.Name()
	}
	return item.Type.Elem().Name() + "List"
}
