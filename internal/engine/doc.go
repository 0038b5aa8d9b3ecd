// Package engine puts a member together: replica, gate, delivery, controllers, duties, writes and reports. Package rota
// is its face for users and documents what they call; ctrlrt and dispatchers get its parts by Engine.Adapt.
package engine
