package miniapi

import (
	"context"
	"net/http"
	"strings"
)

// logFile is what a container has written.
type logFile struct {
	text  string
	ended bool
}

// WriteLog adds to the log of a pod's container, as a container runtime does.
func (s *Server) WriteLog(namespace, pod, text string) {
	s.changeLog(namespace, pod, func(l *logFile) { l.text += text })
}

// RotateLog forgets what was written until now. Those who follow the log have it.
func (s *Server) RotateLog(namespace, pod string) {
	s.changeLog(namespace, pod, func(l *logFile) { l.text = "" })
}

// EndLog is the end of the container: who follows its log is told.
func (s *Server) EndLog(namespace, pod string) {
	s.changeLog(namespace, pod, func(l *logFile) { l.ended = true })
}

func (s *Server) changeLog(namespace, pod string, change func(*logFile)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.logs == nil {
		s.logs = map[string]*logFile{}
	}
	l := s.logs[namespace+"/"+pod]
	if l == nil {
		l = &logFile{}
		s.logs[namespace+"/"+pod] = l
	}
	before := *l
	change(l)
	s.written = append(s.written, logChange{namespace + "/" + pod, strings.TrimPrefix(l.text, before.text), l.ended})
	s.changed.Broadcast()
}

// logChange is for those who follow.
type logChange struct {
	pod   string
	added string
	ended bool
}

// log streams what is there, and with follow what comes, until the container or the request ends.
func (s *Server) log(w http.ResponseWriter, q *request) {
	s.mu.Lock()
	name, next, text, ended := q.namespace+"/"+q.name, len(s.written), "", false
	if l := s.logs[name]; l != nil {
		text, ended = l.text, l.ended
	}
	exists, breaks := s.objects[key{group: q.group, resource: q.resource, namespace: q.namespace, name: q.name}] != nil, s.breaks
	s.mu.Unlock()
	if !exists {
		fail(w, notFound(q))
		return
	}
	if !send(w, text) || ended || q.URL.Query().Get("follow") != "true" {
		return
	}
	stop := context.AfterFunc(q.Context(), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changed.Broadcast()
	})
	defer stop()
	for {
		change, ok := s.nextLog(q.Context(), &next, breaks)
		if !ok || change.pod == name && (!send(w, change.added) || change.ended) {
			return
		}
	}
}

func (s *Server) nextLog(ctx context.Context, at *int, breaks int) (logChange, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.closed && s.breaks == breaks && ctx.Err() == nil && *at >= len(s.written) {
		s.changed.Wait()
	}
	if s.closed || s.breaks != breaks || ctx.Err() != nil {
		return logChange{}, false
	}
	change := s.written[*at]
	*at++
	return change, true
}

func send(w http.ResponseWriter, text string) bool {
	if _, err := w.Write([]byte(text)); err != nil {
		return false
	}
	w.(http.Flusher).Flush()
	return true
}
