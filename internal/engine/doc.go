// Package engine assembles a member from its parts: replica, gate, delivery, controllers, duties, writes and reports.
// Package rota is its public API and documents the methods. Package ctrlrt and dispatchers get the parts from
// Engine.Adapt.
package engine
