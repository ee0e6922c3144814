package web

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// described is the document as a client reads it.
type described struct {
	OpenAPI    string
	Paths      map[string]map[string]operation
	Components struct{ Schemas map[string]schema }
}

type operation struct {
	Summary    string
	Parameters []struct {
		Name, In, Description string
		Schema                schema
	}
	Responses map[string]struct {
		Description string
		Content     map[string]struct{ Schema schema }
	}
}

type schema struct {
	Ref                  string `json:"$ref"`
	AllOf                []schema
	Type, Description    string
	Enum                 []string
	Items                *schema
	Properties           map[string]schema
	Required             []string
	AdditionalProperties any
}

// check says where a value is not as the schema has it.
func (d *described) check(s schema, at string, value any) (faults []string) {
	for len(s.AllOf) == 1 {
		s = s.AllOf[0]
	}
	if s.Ref != "" {
		name := strings.TrimPrefix(s.Ref, "#/components/schemas/")
		known, ok := d.Components.Schemas[name]
		if !ok {
			return []string{at + ": no schema " + s.Ref}
		}
		return d.check(known, at, value)
	}
	fault := func(format string, args ...any) { faults = append(faults, at+": "+fmt.Sprintf(format, args...)) }
	switch v := value.(type) {
	case map[string]any:
		if s.AdditionalProperties != true {
			faults = append(faults, d.checkFields(s, at, v)...)
		}
	case []any:
		if s.Type != "array" || s.Items == nil {
			fault("a list, described as %q", s.Type)
			break
		}
		for i, item := range v {
			faults = append(faults, d.check(*s.Items, fmt.Sprintf("%s[%d]", at, i), item)...)
		}
	case string:
		if s.Type != "string" || len(s.Enum) > 0 && !slices.Contains(s.Enum, v) {
			fault("%q, described as %s %v", v, s.Type, s.Enum)
		}
	case bool:
		if s.Type != "boolean" {
			fault("a boolean, described as %q", s.Type)
		}
	case float64:
		if s.Type != "integer" || v != float64(int64(v)) {
			fault("%v, described as %q", v, s.Type)
		}
	default:
		fault("%v is of no kind that is described", v)
	}
	return faults
}

func (d *described) checkFields(s schema, at string, fields map[string]any) (faults []string) {
	if s.Type != "object" {
		return []string{at + ": an object, described as " + s.Type}
	}
	for name, value := range fields {
		p, ok := s.Properties[name]
		switch {
		case !ok:
			faults = append(faults, at+"."+name+": not described")
		case p.Description == "":
			faults = append(faults, at+"."+name+": described without a word")
		default:
			faults = append(faults, d.check(p, at+"."+name, value)...)
		}
	}
	for _, name := range s.Required {
		if _, ok := fields[name]; !ok {
			faults = append(faults, at+"."+name+": missing")
		}
	}
	return faults
}

// furnish makes one of everything, with every field that an answer can have.
func (r *rig) furnish() {
	r.Helper()
	now := metav1.NowMicro()
	condition := []metav1.Condition{{Type: v1beta1.HealthyCondition, Status: metav1.ConditionFalse, Reason: "Damaged", Message: "m", LastTransitionTime: metav1.Now()}}
	c := r.cluster("holdfast", "access")
	c.Status = v1beta1.StorageClusterStatus{
		Phase: v1beta1.ClusterRunning, DesiredNodes: 1, ReadyNodes: 1, Version: "v2", OldestVersion: "v1", Upgrade: "up", Conditions: condition,
		Nodes: []v1beta1.NodeHealth{{Name: "a", Ready: true, Version: "v1", Message: "m"}},
	}
	if _, err := r.ours.HoldfastV1beta1().StorageClusters().UpdateStatus(r.Context(), c, metav1.UpdateOptions{}); err != nil {
		r.Fatal(err)
	}
	r.secret("access", map[string]string{userKey: user, passwordKey: password})
	r.node("a", metav1.ConditionFalse, "fast")
	r.node("b", metav1.ConditionUnknown)
	r.volume("v1", "a", "fast", v1beta1.VolumeStatus{
		Phase: v1beta1.PhaseReady, Size: gib(1), Used: gib(1), FSType: "ext4", Mode: v1beta1.ModeFilesystem, Pool: "fast", Provisioning: v1beta1.Thin,
		CreationTime: &now, Conditions: condition,
	})
	r.volume("v2", "a", "fast", v1beta1.VolumeStatus{})
	r.snapshot("s1", "v1", "a", v1beta1.SnapshotStatus{
		Phase: v1beta1.PhaseReady, Size: gib(1), Used: gib(1), FSType: "ext4", Mode: v1beta1.ModeFilesystem, Pool: "fast", Group: "g", CreationTime: &now, Conditions: condition,
	})
	r.snapshot("s2", "v1", "a", v1beta1.SnapshotStatus{})
	r.nfsServer("shop", "files", v1beta1.NFSServerStatus{
		Phase: v1beta1.NFSDegraded, Endpoint: "10.0.0.1:2049", Path: "/p", Access: v1beta1.NFSReadOnly, ClaimName: "c", Node: "a", Capacity: gib(1), Promised: gib(1), Exports: 1, Clients: 1,
	})
	r.warn("pod", "Reason", time.Now())
	r.start()
	wait.Until(r, "the user may come in, and all is known", func() bool {
		return r.get("/api/v1/events").status == http.StatusOK && len(r.server.known().Hidden) == 0
	})
}

func TestTheDocumentDescribesEveryFieldOfEveryAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.furnish()
		d := read[described](r, "/openapi.json")
		if !strings.HasPrefix(d.OpenAPI, "3.") || len(d.Paths) != len(apiRoutes())+len(documentPaths)+2 {
			t.Fatalf("version %s with %d paths", d.OpenAPI, len(d.Paths))
		}
		for path, methods := range d.Paths {
			operation := methods["get"]
			if len(methods) != 1 || operation.Summary == "" {
				t.Errorf("%s: %v", path, methods)
			}
			for _, name := range []string{"v1", "a", "s1", "v2", "b", "s2", "nowhere"} {
				a := r.get(strings.ReplaceAll(path, "{name}", name))
				response, ok := operation.Responses[fmt.Sprint(a.status)]
				if !ok || response.Description == "" {
					t.Errorf("%s: status %d is not described", path, a.status)
					continue
				}
				kind, _, _ := strings.Cut(a.header.Get("Content-Type"), ";")
				described, ok := response.Content[kind]
				if !ok {
					t.Errorf("%s: %d with content %q, described are %v", path, a.status, kind, slices.Collect(maps.Keys(response.Content)))
					continue
				}
				var value any = string(a.body)
				if kind == "application/json" {
					if err := json.Unmarshal(a.body, &value); err != nil {
						t.Fatal(err)
					}
				}
				for _, fault := range d.check(described.Schema, path, value) {
					t.Error(fault)
				}
			}
		}
	})
}

func TestTheDocumentDescribesEveryRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.furnish()
		d := read[described](r, "/api/v1/openapi.json")
		refused := map[string]func(path string) *http.Request{
			"400": func(path string) *http.Request { return r.request(http.MethodGet, path+"?nonsense=1", nil) },
			"401": func(path string) *http.Request {
				q := r.request(http.MethodGet, path, nil)
				q.Header.Del("Authorization")
				return q
			},
			"405": func(path string) *http.Request { return r.request(http.MethodPost, path, nil) },
			"413": func(path string) *http.Request { return r.request(http.MethodGet, path, strings.NewReader("x")) },
		}
		for _, route := range apiRoutes() {
			for status, ask := range refused {
				a := r.ask(ask(strings.ReplaceAll(route.path, "{name}", "x")))
				var value any
				if err := json.Unmarshal(a.body, &value); err != nil || fmt.Sprint(a.status) != status {
					t.Fatalf("%s: %d %s, want %s", route.path, a.status, a.body, status)
				}
				response := d.Paths[route.path]["get"].Responses[status]
				for _, fault := range d.check(response.Content["application/json"].Schema, route.path+" "+status, value) {
					t.Error(fault)
				}
			}
		}
	})
}

func TestEveryParameterThatIsDescribedIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.furnish()
		d := read[described](r, "/openapi.json")
		for path, methods := range d.Paths {
			for _, p := range methods["get"].Parameters {
				if p.Description == "" {
					t.Errorf("%s: %s has no description", path, p.Name)
				}
				values := append(slices.Clone(p.Schema.Enum), "x")
				switch {
				case p.In == "path", p.Name == continueParameter.name:
					continue // the paths are asked in another test, the pages too
				case p.Schema.Type == "integer":
					values = []string{"1", "1000"}
				case len(p.Schema.Enum) > 0:
					values = p.Schema.Enum
				}
				for _, value := range values {
					if a := r.get(path + "?" + p.Name + "=" + value); a.status != http.StatusOK {
						t.Errorf("%s: %s=%s: %d %s", path, p.Name, value, a.status, a.body)
					}
				}
			}
		}
	})
}

// The check above is worth what it finds.
func TestTheCheckOfTheDocumentSeesWhatIsWrong(t *testing.T) {
	var d described
	document, err := document()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(document, &d); err != nil {
		t.Fatal(err)
	}
	good := map[string]any{"status": 404.0, "reason": "r", "message": "m"}
	if faults := d.check(schema{Ref: "#/components/schemas/Error"}, "", good); len(faults) > 0 {
		t.Fatal(faults)
	}
	for name, change := range map[string]func(map[string]any){
		"a field more":    func(v map[string]any) { v["more"] = 1.0 },
		"a field less":    func(v map[string]any) { delete(v, "reason") },
		"another type":    func(v map[string]any) { v["status"] = "404" },
		"half a number":   func(v map[string]any) { v["status"] = 404.5 },
		"nothing":         func(v map[string]any) { v["message"] = nil },
		"an object in it": func(v map[string]any) { v["message"] = map[string]any{} },
		"a list in it":    func(v map[string]any) { v["message"] = []any{} },
	} {
		bad := maps.Clone(good)
		change(bad)
		if faults := d.check(schema{Ref: "#/components/schemas/Error"}, "", bad); len(faults) == 0 {
			t.Errorf("%s is not seen", name)
		}
	}
}

func TestATypeThatCannotBeDescribedIsNotServed(t *testing.T) {
	for name, answer := range map[string]any{
		"without description": struct {
			A string `json:"a"`
		}{},
		"without name": struct {
			A string `doc:"A."`
		}{},
		"a map": struct {
			A map[string]string `json:"a" doc:"A."`
		}{},
		"words that are not listed": struct {
			A metav1.FieldsV1 `json:"a" doc:"A."`
			B time.Weekday    `json:"b" doc:"B."`
			C v1beta1.FSType  `json:"c" doc:"C."`
		}{},
	} {
		d := describer{schemas: object{}}
		if d.schema(reflect.TypeOf(answer)); d.err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
