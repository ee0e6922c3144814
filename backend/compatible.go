package backend

import (
	"fmt"
	"slices"
)

// Satisfies returns nil if an existing volume meets spec and source, and is thus the result of a repeated request.
// Otherwise it returns an ErrExists that names the difference. Labels are not compared.
func (v *Volume) Satisfies(spec VolumeSpec, source *Source) error {
	differ := func(what string, have, want any) error {
		return fmt.Errorf("%w: volume %s has %s %v, requested is %v; choose another name or the same properties", ErrExists, v.ID, what, have, want)
	}
	switch {
	case v.Name != spec.Name:
		return differ("name", Quote(v.Name), Quote(spec.Name))
	case v.Condition.Abnormal && v.Size == 0:
		return fmt.Errorf("%w: volume %s exists but is damaged: %s", ErrPrecondition, v.ID, v.Condition.Message)
	case spec.Pool != "" && v.Pool != spec.Pool:
		return differ("pool", v.Pool, spec.Pool)
	case v.Size < spec.Size.Required:
		return differ("size", v.Size, fmt.Sprintf("at least %d", spec.Size.Required))
	case spec.Size.Limit > 0 && v.Size > spec.Size.Limit:
		return differ("size", v.Size, fmt.Sprintf("at most %d", spec.Size.Limit))
	case spec.Mode != "" && v.Mode != spec.Mode:
		return differ("mode", v.Mode, spec.Mode)
	case spec.FSType != "" && v.FSType != spec.FSType:
		return differ("file system", v.FSType, spec.FSType)
	case spec.Provisioning != "" && v.Provisioning != spec.Provisioning:
		return differ("provisioning", v.Provisioning, spec.Provisioning)
	case !slices.Equal(v.MkfsOptions, spec.MkfsOptions):
		return differ("mkfs options", v.MkfsOptions, spec.MkfsOptions)
	case v.Inodes != spec.Inodes:
		return differ("inodes", v.Inodes, spec.Inodes)
	case v.Shared != spec.Shared:
		return differ("sharing", v.Shared, spec.Shared)
	case spec.Server != "" && v.Server != spec.Server:
		return differ("NFS server", v.Server, spec.Server)
	case source == nil && v.Source != nil:
		return differ("content of", v.Source, "nothing")
	case source != nil && (v.Source == nil || *v.Source != *source):
		return differ("content of", v.Source, source)
	}
	return nil
}

// String formats a source for messages.
func (s *Source) String() string {
	if s == nil {
		return "nothing"
	}
	return string(s.Kind) + " " + string(s.ID)
}
