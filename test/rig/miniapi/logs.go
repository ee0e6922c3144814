package miniapi

import (
	"context"
	"net/http"
	"strings"
)

// logFile is what a container has written.
type logFile struct {
	text     string
	ended    bool
	followed bool // it was requested with follow
}

// WriteLog adds to the log of a pod's container, as a container runtime does.
func (s *Server) WriteLog(namespace, pod, text string) {
	s.changeLog(namespace, pod, func(l *logFile) { l.text += text })
}

// RotateLog forgets what was written until now. Those who follow the log have it.
func (s *Server) RotateLog(namespace, pod string) {
	s.changeLog(namespace, pod, func(l *logFile) { l.text = "" })
}

// EndLog is the end of the container: the followers of its log get the end.
func (s *Server) EndLog(namespace, pod string) {
	s.changeLog(namespace, pod, func(l *logFile) { l.ended = true })
}

// Followed waits until the log of a pod's container is followed: what is written then is sent, even if it is rotated away
// at once. It is false when ctx ends before.
func (s *Server) Followed(ctx context.Context, namespace, pod string) bool {
	stop := context.AfterFunc(ctx, s.wake)
	defer stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for ctx.Err() == nil && !s.logOf(namespace+"/"+pod).followed {
		s.changed.Wait()
	}
	return ctx.Err() == nil
}

// wake has all who wait look whether their context has ended.
func (s *Server) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed.Broadcast()
}

func (s *Server) logOf(name string) *logFile {
	if s.logs[name] == nil {
		s.logs[name] = &logFile{}
	}
	return s.logs[name]
}

func (s *Server) changeLog(namespace, pod string, change func(*logFile)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.logOf(namespace + "/" + pod)
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
	follow, name := q.URL.Query().Get("follow") == "true", q.namespace+"/"+q.name
	s.mu.Lock()
	l := s.logOf(name)
	next, text, ended := len(s.written), l.text, l.ended
	l.followed = l.followed || follow
	s.changed.Broadcast()
	exists, breaks := s.objects[key{group: q.group, resource: q.resource, namespace: q.namespace, name: q.name}] != nil, s.breaks
	s.mu.Unlock()
	if !exists {
		fail(w, notFound(q))
		return
	}
	if !send(w, text) || ended || !follow {
		return
	}
	stop := context.AfterFunc(q.Context(), s.wake)
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
