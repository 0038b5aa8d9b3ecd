package delivery

import "k8s.io/apimachinery/pkg/runtime/schema"

// Pending returns how many writes reads may wait for.
func (s *Share) Pending(kind schema.GroupKind) int { return len(s.Reads.In(kind, "")) }
