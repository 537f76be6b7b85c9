"""EVI's own sentences, for the model that needs no network."""

PHRASES = {
    "nl": {
        "greeting": "Hallo! Ik ben EVI. Waarmee kan ik u helpen op het gebied van veilig en gezond werken?",
        "thanks": "Graag gedaan. Hebt u nog een vraag over veilig en gezond werken?",
        "who": (
            "Ik ben EVI, een assistent voor veilig en gezond werken. Ik zoek in richtlijnen en producten, en noem bij "
            "elk antwoord de bron. Vraag me bijvoorbeeld naar {subjects}."
        ),
        "who_empty": (
            "Ik ben EVI, een assistent voor veilig en gezond werken. Mijn kennisbank is nog leeg: vraag de beheerder "
            "om richtlijnen in te lezen."
        ),
        "unclear_empty": (
            "Mijn kennisbank is nog leeg, dus ik kan nog geen vragen beantwoorden. Kunt u de beheerder vragen om "
            "richtlijnen in te lezen?"
        ),
        "nothing": (
            "Daarover heb ik niets gevonden in mijn kennisbank, dus daar kan ik u niet mee helpen. Ik beantwoord "
            "vragen over veilig en gezond werken, zoals werken op hoogte, tillen of gevaarlijke stoffen."
        ),
        "no_products": "Ik heb in het assortiment geen product gevonden dat daarbij past.",
        "no_more": "Meer dan dit staat er niet over in mijn kennisbank. Hebt u een vraag over een onderdeel ervan?",
        "products": "Deze producten passen daarbij:",
        "fits": "Past bij {subjects}.",
        "on_request": "prijs op aanvraag",
        "costs": "**{name}** kost {price}.",
        "price_on_request": "De prijs van **{name}** is op aanvraag.",
        "which": "Waarover gaat uw vraag: {subjects}?",
        "unclear": "Over welk onderwerp gaat uw vraag? Ik weet bijvoorbeeld iets over {subjects}. Wat wilt u weten?",
        "broken": "Ik kan op dit moment niet in de kennisbank zoeken. Probeer het over een minuut nog eens.",
        "foreign": "Hierover heb ik alleen een Engelse bron:",
        "rests_on": "Dit is waar mijn antwoord op rust:",
        "source_of": "**{title}**, paragraaf “{section}”{source}",
        "check": (
            "Ik haal aan wat in de kennisbank staat en beoordeel dat niet zelf. Hangt er veel van af, lees de bron dan "
            "na of vraag een arbodeskundige."
        ),
        "no_source": (
            "Voor mijn vorige antwoord kan ik geen bron noemen. Stel uw vraag nog eens in één zin, dan zoek ik het na."
        ),
        "urgent": "Is er direct gevaar of is iemand gewond, bel dan 112 en waarschuw de BHV.",
        "unseen": "Ik kan afbeeldingen niet bekijken, dus ik ga alleen uit van uw tekst.",
        "image_alone": "Ik kan afbeeldingen niet bekijken. Kunt u uw vraag in woorden stellen?",
        "unread": "Ik kan {name} niet openen, dus ik ga alleen uit van uw vraag.",
        "remember_proposed": (
            "Ik heb voorgesteld om te onthouden: “{name}”. Zodra dat is goedgekeurd, houd ik er rekening mee."
        ),
        "remember_known": "“{name}” staat al bij wat ik van u onthoud, of wacht op goedkeuring.",
        "remember_refused": "Dat kan ik niet onthouden. Vertel in één korte zin iets over uzelf of uw werk.",
        "not_remembered": "In dit gesprek kan ik niets onthouden, want er wordt niets van bewaard.",
        "about_person": "Dit is wat ik van u onthoud:",
        "about_nobody": (
            "Ik heb nog niets over u onthouden. Zeg bijvoorbeeld “Onthoud dat ik in de bouw werk”; na goedkeuring "
            "houd ik er rekening mee."
        ),
        "said_user": "Op {date} zei u: “{text}”",
        "said_assistant": "Op {date} antwoordde ik: “{text}”",
        "said_fact": "Onthouden is: {text}",
        "said_summary": "Het gesprek van {date} ging hierover: {text}",
        "never_said": "Daarover heb ik in onze eerdere gesprekken niets gevonden.",
        "not_then": "Uit die tijd heb ik daarover niets gevonden, maar wel van een ander moment:",
        "no_past": "We hebben nog niet eerder met elkaar gesproken.",
        "and": "en",
        "or": "of",
    },
    "en": {
        "greeting": "Hello! I am EVI. What would you like to know about safe and healthy work?",
        "thanks": "You're welcome. Do you have another question about safe and healthy work?",
        "who": (
            "I am EVI, an assistant for safe and healthy work. I search guidelines and products, and name the source "
            "with every answer. Ask me about {subjects}, for example."
        ),
        "who_empty": (
            "I am EVI, an assistant for safe and healthy work. My knowledge base is still empty: ask the administrator "
            "to take in guidelines."
        ),
        "unclear_empty": (
            "My knowledge base is still empty, so I cannot answer questions yet. Could you ask the administrator to "
            "take in guidelines?"
        ),
        "nothing": (
            "I found nothing about that in my knowledge base, so I cannot help you with it. I answer questions about "
            "safe and healthy work, such as working at height, lifting or hazardous substances."
        ),
        "no_products": "I found no product in the catalogue that fits.",
        "no_more": "My knowledge base has no more about this than what I said. Is there a part you want to know about?",
        "products": "These products fit (the catalogue is in Dutch):",
        "fits": "For {subjects}.",
        "on_request": "price on request",
        "costs": "**{name}** costs {price}.",
        "price_on_request": "The price of **{name}** is on request.",
        "which": "What is your question about: {subjects}?",
        "unclear": (
            "Which subject is your question about? I know something about {subjects}, for example. "
            "What would you like to know?"
        ),
        "broken": "I cannot search the knowledge base at the moment. Please try again in a minute.",
        "foreign": "I have only a Dutch source for this:",
        "rests_on": "This is what my answer rests on:",
        "source_of": "**{title}**, section “{section}”{source}",
        "check": (
            "I quote what the knowledge base says and do not judge it myself. If much depends on it, read the source "
            "or ask a safety specialist."
        ),
        "no_source": (
            "I cannot name a source for my last answer. Put your question in one sentence once more, and I look it up."
        ),
        "urgent": "If there is immediate danger or somebody is hurt, call 112 and warn the emergency responders (BHV).",
        "unseen": "I cannot see images, so I go by your text alone.",
        "image_alone": "I cannot see images. Could you put your question into words?",
        "unread": "I cannot open {name}, so I go by your question alone.",
        "remember_proposed": (
            "I have proposed to remember: “{name}”. As soon as that is approved, I will take it into account."
        ),
        "remember_known": "“{name}” is already among what I remember about you, or waits for approval.",
        "remember_refused": "I cannot remember that. Tell me about yourself or your work in one short sentence.",
        "not_remembered": "I cannot remember anything in this conversation, because nothing of it is kept.",
        "about_person": "This is what I remember about you:",
        "about_nobody": (
            "I remember nothing about you yet. Say “Remember that I work in construction”, for example; once that is "
            "approved, I take it into account."
        ),
        "said_user": "On {date} you said: “{text}”",
        "said_assistant": "On {date} I answered: “{text}”",
        "said_fact": "What is to be remembered: {text}",
        "said_summary": "The conversation of {date} was about this: {text}",
        "never_said": "I found nothing about that in our earlier conversations.",
        "not_then": "I found nothing about that from then, but I did from another time:",
        "no_past": "We have not talked before.",
        "and": "and",
        "or": "or",
    },
}

# For whom neither Dutch nor English comes first; the answer follows in English.
OTHER_LANGUAGES = {
    "de": "Ich antworte nur auf Niederländisch oder Englisch. Hier ist die Antwort auf Englisch:",
    "fr": "Je réponds uniquement en néerlandais ou en anglais. Voici la réponse en anglais :",
    "es": "Solo respondo en neerlandés o en inglés. Esta es la respuesta en inglés:",
    "pl": "Odpowiadam tylko po niderlandzku lub po angielsku. Oto odpowiedź po angielsku:",
}
