package miniapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func conflict(format string, args ...any) error {
	return &failure{http.StatusConflict, metav1.StatusReasonConflict, fmt.Sprintf(format, args...)}
}

// commit gives o the next version, stores it and notifies the watches.
func (s *Server) commit(k key, kind string, o object) {
	s.version++
	old := s.objects[k]
	o.meta()["resourceVersion"] = strconv.Itoa(s.version)
	if kind == "DELETED" {
		delete(s.objects, k)
	} else {
		s.objects[k] = o
	}
	s.history = append(s.history, event{s.version, kind, k, o, old})
	s.changed.Broadcast()
}

func (s *Server) create(q *request) (any, error) {
	o, err := parse(q.body)
	if err != nil {
		return nil, err
	}
	k := q.key
	if k.name = o.text("name"); k.name == "" {
		return nil, &failure{http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "metadata.name is missing"}
	}
	if s.objects[k] != nil {
		return nil, &failure{http.StatusConflict, metav1.StatusReasonAlreadyExists, fmt.Sprintf("%s %q already exists", k.resource, k.name)}
	}
	if uid := o.text("uid"); uid != "" && q.verb() == "apply" {
		return nil, conflict("%s %q of uid %s does not exist", k.resource, k.name, uid)
	}
	o["kind"], o["apiVersion"] = kinds[k.resource], q.version
	if k.namespace != "" {
		o.meta()["namespace"] = k.namespace
	}
	o.born(fmt.Sprintf("uid-%d", s.version+1))
	if q.URL.Query().Get("dryRun") == metav1.DryRunAll {
		return o, nil
	}
	s.commit(k, "ADDED", o)
	return o, nil
}

func (s *Server) write(q *request, old object) (any, error) {
	sent, err := parse(q.body)
	if err != nil {
		return nil, err
	}
	if v := sent.text("resourceVersion"); v != "" && v != old.text("resourceVersion") {
		return nil, conflict("%s %q has been modified: it is at version %s, not %s", q.resource, q.name, old.text("resourceVersion"), v)
	}
	if uid := sent.text("uid"); uid != "" && uid != old.text("uid") {
		return nil, conflict("%s %q has uid %s, not %s", q.resource, q.name, old.text("uid"), uid)
	}
	next := sent
	if q.verb() != "update" {
		next = old.copy()
		merge(next, sent, q.verb() == "apply")
	}
	next.keep(old, q.sub == "status")
	if reflect.DeepEqual(next.copy(), old.copy()) {
		return old, nil
	}
	if next.meta()["deletionTimestamp"] != nil && len(next.finalizers()) == 0 {
		s.commit(q.key, "DELETED", next)
		return next, nil
	}
	s.commit(q.key, "MODIFIED", next)
	return next, nil
}

func (s *Server) remove(q *request, old object) (any, error) {
	var options metav1.DeleteOptions
	if len(q.body) > 0 {
		if err := json.Unmarshal(q.body, &options); err != nil {
			return nil, err
		}
	}
	if p := options.Preconditions; p != nil {
		if p.UID != nil && string(*p.UID) != old.text("uid") || p.ResourceVersion != nil && *p.ResourceVersion != old.text("resourceVersion") {
			return nil, conflict("the preconditions of the delete of %s %q are not met", q.resource, q.name)
		}
	}
	if old.meta()["deletionTimestamp"] != nil {
		return old, nil
	}
	next := old.copy()
	if len(next.finalizers()) == 0 {
		s.commit(q.key, "DELETED", next)
		return metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess}, nil
	}
	next.meta()["deletionTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	next.grow()
	s.commit(q.key, "MODIFIED", next)
	return next, nil
}
