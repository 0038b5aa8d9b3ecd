package names

import "strings"

// ShadowSuffix ends the names of shadows, the rotas whose members work on nothing, and no other rota's.
const ShadowSuffix = "-shadow"

// IsShadow says whether a rota of that name is a shadow.
func IsShadow(rota string) bool { return strings.HasSuffix(rota, ShadowSuffix) }
