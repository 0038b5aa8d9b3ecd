package names

import "strings"

// ShadowSuffix is the suffix of the names of shadows, the rotas whose members work on nothing. No other rota has it.
const ShadowSuffix = "-shadow"

// IsShadow reports whether a rota of that name is a shadow.
func IsShadow(rota string) bool { return strings.HasSuffix(rota, ShadowSuffix) }
