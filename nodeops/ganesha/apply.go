package ganesha

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// apply makes Ganesha serve one export as desired. Any error other than errRefused means that Ganesha has failed.
func (s *Server) apply(l *process, id uint16) error {
	all, err := s.write(l)
	if err != nil {
		return err
	}
	want, wants := all[id]
	have, has := l.served[id]
	switch {
	case wants == has && want.change == have.change:
		return nil
	case !wants:
		return l.remove(id)
	case !has:
		return l.add(want)
	case want.Path == have.Path && want.Pseudo == have.Pseudo && want.Filesystem == have.Filesystem:
		return l.update(want)
	}
	if err := l.remove(id); err != nil {
		return err
	}
	return l.add(want)
}

// applyAll applies all exports that differ. A refusal by Ganesha is logged once and does not affect other exports.
func (s *Server) applyAll(l *process) error {
	all, err := s.write(l)
	if err != nil {
		return err
	}
	ids := slices.Concat(slices.Collect(maps.Keys(l.served)), slices.Collect(maps.Keys(all)))
	// Removals come first: a new export may have the path of a removed one.
	slices.SortFunc(ids, func(a, b uint16) int {
		_, wantsA := all[a]
		_, wantsB := all[b]
		switch {
		case wantsA == wantsB:
			return int(a) - int(b)
		case wantsB:
			return -1
		}
		return 1
	})
	for _, id := range slices.Compact(ids) {
		err := s.apply(l, id)
		switch {
		case err == nil:
			delete(l.refused, id)
		case !errors.Is(err, errRefused):
			return err
		case l.refused[id] != all[id].change:
			l.refused[id] = all[id].change
			s.config.Log.Error("an export is not served; it is retried", "export", id, "path", all[id].Path, "error", err)
		}
	}
	return nil
}

func (l *process) add(w wanted) error {
	err := l.admin.add(w.Export)
	if errors.Is(err, errRefused) {
		err = fmt.Errorf("%w; the directory must exist, and its file system must have a UUID that no other export's has", err)
	}
	if err != nil {
		return fmt.Errorf("export %d of %s: %w", w.ID, w.Path, err)
	}
	l.served[w.ID] = w
	return nil
}

func (l *process) update(w wanted) error {
	if err := l.admin.update(w.Export); err != nil {
		return fmt.Errorf("changing export %d of %s: %w", w.ID, w.Path, err)
	}
	l.served[w.ID] = w
	return nil
}

// remove ignores that Ganesha does not have the export.
func (l *process) remove(id uint16) error {
	if err := l.admin.remove(id); err != nil && !errors.Is(err, errRefused) {
		return fmt.Errorf("removing export %d: %w", id, err)
	}
	delete(l.served, id)
	return nil
}
