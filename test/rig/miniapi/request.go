package miniapi

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var kinds = map[string]string{
	"volumes": "Volume", "snapshots": "Snapshot", "storagenodes": "StorageNode", "leases": "Lease", "nodes": "Node", "namespaces": "Namespace",
	"events": "Event", "persistentvolumes": "PersistentVolume", "persistentvolumeclaims": "PersistentVolumeClaim", "pods": "Pod", "storageclasses": "StorageClass", "volumeattachments": "VolumeAttachment",
	"secrets": "Secret", "configmaps": "ConfigMap", "storageclusters": "StorageCluster",
	"nodejobs": "NodeJob", "storageupgrades": "StorageUpgrade", "daemonsets": "DaemonSet", "deployments": "Deployment",
	"statefulsets": "StatefulSet", "replicasets": "ReplicaSet", "customresourcedefinitions": "CustomResourceDefinition", "csinodes": "CSINode",
	"services": "Service", "serviceaccounts": "ServiceAccount", "roles": "Role", "rolebindings": "RoleBinding", "clusterroles": "ClusterRole",
	"clusterrolebindings": "ClusterRoleBinding", "csidrivers": "CSIDriver", "poddisruptionbudgets": "PodDisruptionBudget",
	"nfsservers": "NFSServer", "volumesnapshots": "VolumeSnapshot", "volumesnapshotcontents": "VolumeSnapshotContent",
}

type request struct {
	*http.Request
	key
	version string
	sub     string
	body    []byte
}

// failure is an error with the status that a client reads.
type failure struct {
	code    int
	reason  metav1.StatusReason
	message string
}

// noObjectError is the failure to find an object; the answer names it, which that for an unknown kind cannot.
type noObjectError struct {
	failure
	name string
}

func (f *failure) Error() string { return f.message }

func read(r *http.Request) (*request, error) {
	q := &request{Request: r}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		q.version, parts = parts[1], parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		q.group, q.version, parts = parts[1], parts[1]+"/"+parts[2], parts[3:]
	default:
		return nil, &failure{http.StatusNotFound, metav1.StatusReasonNotFound, "no such path: " + r.URL.Path}
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		q.namespace, parts = parts[1], parts[2:]
	}
	q.resource = parts[0]
	if kinds[q.resource] == "" {
		return nil, &failure{http.StatusNotFound, metav1.StatusReasonNotFound, "no such resource: " + q.resource}
	}
	if len(parts) > 1 {
		q.name = parts[1]
	}
	if len(parts) > 2 {
		q.sub = parts[2]
	}
	var err error
	q.body, err = io.ReadAll(r.Body)
	return q, err
}

// verb is what an audit log would say.
func (q *request) verb() string {
	switch {
	case q.Method == http.MethodGet && q.URL.Query().Get("watch") != "":
		return "watch"
	case q.Method == http.MethodGet && q.name == "":
		return "list"
	case q.Method == http.MethodPatch && strings.Contains(q.Header.Get("Content-Type"), "apply-patch"):
		return "apply"
	}
	return map[string]string{"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[q.Method]
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	q, err := read(r)
	if err != nil {
		fail(w, err)
		return
	}
	what := q.verb() + " " + q.resource
	if q.sub != "" {
		what += "/" + q.sub
	}
	s.mu.Lock()
	s.requests[what]++
	s.mu.Unlock()
	if q.verb() == "watch" {
		s.watch(w, q)
		return
	}
	if q.resource == "pods" && q.sub == "log" {
		s.log(w, q)
		return
	}
	answer, err := s.answer(q)
	if err != nil {
		fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if q.Method == http.MethodPost {
		w.WriteHeader(http.StatusCreated)
	}
	_ = json.NewEncoder(w).Encode(answer) // a client that has gone learns nothing
}

func (s *Server) answer(q *request) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch q.verb() {
	case "list":
		return s.list(q)
	case "create":
		return s.create(q)
	}
	old := s.objects[q.key]
	if old == nil && q.verb() == "apply" && q.sub == "" {
		return s.create(q)
	}
	if old == nil {
		return nil, notFound(q)
	}
	switch q.verb() {
	case "get":
		return old, nil
	case "delete":
		return s.remove(q, old)
	}
	return s.write(q, old)
}

func notFound(q *request) error {
	return &noObjectError{failure{http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("%s %q not found", q.resource, q.name)}, q.name}
}

func (s *Server) list(q *request) (any, error) {
	want, err := parseSelector(q.URL.Query().Get("labelSelector"), q.URL.Query().Get("fieldSelector"))
	if err != nil {
		return nil, &failure{http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error()}
	}
	items := []object{}
	for k, o := range s.objects {
		if k.of() == q.of() && (q.namespace == "" || k.namespace == q.namespace) && want.matches(o) {
			items = append(items, o)
		}
	}
	slices.SortFunc(items, func(a, b object) int { return strings.Compare(a.text("name"), b.text("name")) })
	return map[string]any{
		"kind": kinds[q.resource] + "List", "apiVersion": q.version,
		"metadata": map[string]any{"resourceVersion": strconv.Itoa(s.version)}, "items": items,
	}, nil
}

func fail(w http.ResponseWriter, err error) {
	f := &failure{http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error()}
	var details *metav1.StatusDetails
	switch err := err.(type) { //nolint:errorlint // never wrapped
	case *failure:
		f = err
	case *noObjectError:
		f, details = &err.failure, &metav1.StatusDetails{Name: err.name}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(f.code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(f.code), Reason: f.reason, Message: f.message, Details: details,
	})
}
